// SPDX-License-Identifier: Apache-2.0
#include "memoir/predict/model/write_model.h"

#include <cstring>
#include <vector>

#include "memoir/base/error.h"
#include "memoir/predict/model/lifetime_model.h"

namespace memoir {

std::string write_model(const ModelSections& sections, std::uint64_t key) {
  using namespace model_format;
  Header header;
  header.key = key;
  for (const auto& section : sections) header.sections += section.has_value();
  std::string file(sizeof header + header.sections * sizeof(Section), '\0');
  size_t row = 0;
  for (std::uint32_t kind = 1; kind <= kKinds; ++kind) {
    const auto& content = sections[kind - 1];
    if (!content) continue;
    const SectionRow& about = kSectionRows[kind - 1];
    const size_t head = kind == kWeights ? sizeof(WeightsHead) : 0;
    if (content->size() < head || (content->size() - head) % about.record != 0)
      throw Error("a model's section '" + std::string(about.name) + "' has " +
                  std::to_string(content->size()) + " bytes, which is not a number of records; make it " +
                  std::to_string(head) + " + " + std::to_string(about.record) + " for each");
    Section section;
    section.kind = kind;
    section.flags = about.optional ? kOptionalSection : 0;
    section.begin = file.size();
    section.size = content->size();
    section.count = (content->size() - head) / about.record;
    std::memcpy(file.data() + sizeof header + row++ * sizeof section, &section, sizeof section);
    file.append(*content);
    file.resize((file.size() + 7) / 8 * 8);
  }
  header.file_size = file.size();
  std::memcpy(file.data(), &header, sizeof header);
  header.checksum = checksum(file);
  std::memcpy(file.data(), &header, sizeof header);

  std::vector<std::uint64_t> aligned((file.size() + 7) / 8);
  std::memcpy(aligned.data(), file.data(), file.size());
  LifetimeModel model;
  if (const char* const why = model.open({reinterpret_cast<const char*>(aligned.data()), file.size()}))
    throw Error(std::string("these sections make no model: ") + why +
                "; see docs/reference/formats-model.md");
  return file;
}

}  // namespace memoir

// SPDX-License-Identifier: Apache-2.0
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "bind.h"
#include "memoir/base/error.h"
#include "memoir/base/files.h"
#include "memoir/formats/pprof/export_lifetimes.h"
#include "memoir/predict/profile/byte_sampling.h"
#include "memoir/predict/profile/log_buckets.h"
#include "memoir/predict/profile/profile_file.h"
#include "memoir/predict/profile/profile_merger.h"
#include "memoir/predict/profile/sample_image.h"
#include "text.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace memoir {

namespace {

using Bytes = nb::ndarray<nb::numpy, const std::uint8_t, nb::ndim<1>>;

nb::bytes to_bytes(std::string_view text) { return nb::bytes(text.data(), text.size()); }

/// A copy of a file's bytes, at most so many. Another process may write the file meanwhile, or cut it short,
/// which would end us by SIGBUS in a mapping of it. Holes stay holes.
class CopiedFile {
 public:
  CopiedFile(const std::string& path, size_t most) {
    const int file = open_to_read(path.c_str());
    struct stat status {};
    const auto fail = [&] {
      const int why = errno;
      if (file >= 0) ::close(file);
      if (address_ != nullptr) ::munmap(address_, size_);
      throw Error(path + ": cannot be read: " + std::strerror(why));
    };
    if (file < 0 || ::fstat(file, &status) != 0) fail();
    size_ = std::min(static_cast<size_t>(status.st_size), most);
    if (size_ > 0) {
      void* const mapped =
          ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (mapped == MAP_FAILED) fail();
      address_ = static_cast<char*>(mapped);
      if (!copy(file)) fail();
    }
    ::close(file);
  }
  ~CopiedFile() {
    if (address_ != nullptr) ::munmap(address_, size_);
  }
  CopiedFile(const CopiedFile&) = delete;
  std::string_view bytes() const { return {address_, size_}; }

 private:
  bool copy(int file) {
    constexpr size_t kStretch = size_t{1} << 20;
    for (size_t at = 0; at < size_;) {
      const off_t data = ::lseek(file, static_cast<off_t>(at), SEEK_DATA);
      if (data < 0 && errno == ENXIO) return true;  // a hole up to the end
      if (data > 0) at = static_cast<size_t>(data);
      if (at >= size_) return true;
      const ssize_t got =
          ::pread(file, address_ + at, std::min(kStretch, size_ - at), static_cast<off_t>(at));
      if (got < 0 && errno != EINTR) return false;
      if (got == 0) return true;
      if (got > 0) at += static_cast<size_t>(got);
    }
    return true;
  }

  char* address_ = nullptr;
  size_t size_ = 0;
};

Bytes records(nb::handle_t<LifetimeProfile> self, std::string_view section) {
  const LifetimeProfile& profile = nb::cast<const LifetimeProfile&>(self);
  const auto raw = [&](const auto& array) {
    return Bytes(reinterpret_cast<const std::uint8_t*>(array.data()), {array.size() * sizeof(array[0])},
                 self);
  };
  if (section == "modules") return raw(profile.modules);
  if (section == "frames") return raw(profile.frames);
  if (section == "stacks") return raw(profile.stacks);
  if (section == "contexts") return raw(profile.contexts);
  if (section == "cells") return raw(profile.cells);
  if (section == "runs") return raw(profile.runs);
  if (section == "pairs") return raw(profile.pairs);
  if (section == "points") return raw(profile.points);
  if (section == "totals")
    return Bytes(reinterpret_cast<const std::uint8_t*>(&profile.totals), {sizeof profile.totals}, self);
  throw Error("a lifetime profile has no section '" + std::string(section) + "'");
}

nb::str word(const LifetimeProfile& profile, std::uint32_t begin, std::uint32_t size) {
  if (size > profile.text.size() || begin > profile.text.size() - size)
    throw Error("no word of this profile");
  return to_str(profile.view({begin, size}));
}

/// A copy in which the frames with these numbers have these names.
LifetimeProfile with_names(const LifetimeProfile& profile, nb::dict names) {
  LifetimeProfile named = profile;
  for (const auto& [key, value] : names) {
    const auto frame = nb::cast<std::uint32_t>(key);
    if (frame >= named.frames.size()) throw Error("no frame " + std::to_string(frame));
    const auto text = nb::cast<std::string>(value);
    if (text.find('\0') != text.npos) throw Error("a name with a zero in it");
    named.frames[frame].name = named.store(text);
  }
  return canonical(named);
}

LifetimeProfile merge(nb::list profiles, nb::list names) {
  if (nb::len(profiles) != nb::len(names)) throw Error("as many names as profiles");
  ProfileMerger merger;
  for (size_t i = 0; i < nb::len(profiles); ++i)
    merger.add(nb::cast<const LifetimeProfile&>(profiles[i]), nb::cast<FileName>(names[i]));
  return merger.finish();
}

LifetimeProfile read_image(const FileName& path, Size offset, const std::string& program, std::uint64_t now) {
  const nb::gil_scoped_release release;
  const CopiedFile file(path, offset + sample_image::kSize);
  const std::string_view bytes = file.bytes();
  return sample_image::read_image(bytes.substr(std::min<size_t>(offset, bytes.size())), program, path, now);
}

}  // namespace

void bind_lifetimes(nb::module_& module) {
  nb::class_<LifetimeProfile>(
      module, "LifetimeProfile",
      "What a .lifetimes file holds, as arrays of records. memoir.Lifetimes gives them names and types.")
      .def_static(
          "from_bytes",
          [](nb::bytes bytes, const FileName& name) {
            const std::string_view view(bytes.c_str(), bytes.size());
            const nb::gil_scoped_release release;
            return read_lifetimes(view, name);
          },
          "bytes"_a, "name"_a = "<memory>", "Checks the bytes of a file. Raises Error when they are none.")
      .def_static(
          "from_image", &read_image, "path"_a, "offset"_a, "program"_a, "now"_a = 0,
          "From what a sampled program keeps in `path` from byte `offset` on. `now`: CLOCK_MONOTONIC in "
          "nanoseconds at the end of the run; 0: at the last sample.")
      .def_static(
          "merge", &merge, "profiles"_a, "names"_a,
          "All of them as one, whatever their order. `names` are for the message of the Error that a run "
          "which is in two of them raises.")
      .def("with_names", &with_names, "names"_a,
           "A copy in which frames have names: by number; inlined functions first, one a line.")
      .def("records", &records, "section"_a,
           "The records of a section, as bytes. A view; it keeps the profile alive.")
      .def("word", &word, "begin"_a, "size"_a, "A path, name or program, by what a record says of it.")
      .def(
          "to_bytes", [](const LifetimeProfile& profile) { return to_bytes(write_lifetimes(profile)); },
          "The bytes of a file.")
      .def(
          "export",
          [](const LifetimeProfile& profile, const std::string& format) {
            Output output;
            export_lifetimes(profile, format, output);
            return to_bytes(output.text());
          },
          "format"_a, "For 'pprof' (its protobuf, not compressed) or flame graphs ('folded').");

  module.def(
      "lifetime_buckets",
      [] {
        static const auto begins = log_buckets::detail::kBegins;
        return nb::ndarray<nb::numpy, const std::uint64_t, nb::ndim<1>>(begins.data(), {begins.size()},
                                                                        nb::none());
      },
      "Where each bucket of a lifetime profile's histograms begins, in ms or bytes.");
  module.def(
      "sample_weight",
      [](Size size, Size every) {
        if (size == 0 || every == 0 || every > byte_sampling::kMostEvery)
          throw Error("a size and a mean of 1 or more");
        return static_cast<double>(byte_sampling::weight(size, every)) / byte_sampling::kOne;
      },
      "size"_a, "every"_a,
      "How many objects a sample of `size` bytes stands for, one in `every` bytes sampled.");
}

}  // namespace memoir

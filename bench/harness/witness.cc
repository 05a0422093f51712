// SPDX-License-Identifier: Apache-2.0
#include "witness.h"

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cinttypes>
#include <cstdlib>
#include <cstring>

#include "tree.h"

namespace memoir::bench {

namespace {

constexpr size_t kMostImages = 20000;             // of a build, say; later ones are not told apart
constexpr uint64_t kGranule = uint64_t{1} << 16;  // one bit of the probe's map (proof.cc)
constexpr uint64_t kHuge = uint64_t{1} << 21;
constexpr double kGrowth = 1.25;  // a process is looked at again once it is so much larger

struct Range {
  uint64_t begin, end;
};

std::string read_link(const char* form, pid_t process) {
  char path[64], text[4096];
  std::snprintf(path, sizeof path, form, process);
  const ssize_t length = readlink(path, text, sizeof text);
  std::string name(text, static_cast<size_t>(std::max<ssize_t>(length, 0)));
  const std::string_view gone = " (deleted)";
  if (name.ends_with(gone)) name.resize(name.size() - gone.size());
  return name;
}

std::string read_file(const char* form, pid_t process) {
  char path[64];
  std::snprintf(path, sizeof path, form, process);
  std::string text;
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return text;
  char piece[4096];
  for (ssize_t length; (length = read(file, piece, sizeof piece)) > 0;) {
    text.append(piece, static_cast<size_t>(length));
  }
  close(file);
  return text;
}

bool is_secure(pid_t process) {
  const std::string vector = read_file("/proc/%d/auxv", process);
  for (size_t at = 0; at + sizeof(Elf64_auxv_t) <= vector.size(); at += sizeof(Elf64_auxv_t)) {
    Elf64_auxv_t entry;
    std::memcpy(&entry, vector.data() + at, sizeof entry);
    if (entry.a_type == AT_SECURE) return entry.a_un.a_val != 0;
  }
  return false;
}

bool has_preload(pid_t process) {
  const std::string variables = '\0' + read_file("/proc/%d/environ", process);
  return variables.find(std::string("\0LD_PRELOAD=", 12)) != std::string::npos &&
         variables.find("libmemoir_proof.so") != std::string::npos;
}

// Anonymous bytes by what is resident now: resident minus what files and shared memory back.
uint64_t resident_anonymous(pid_t process) {
  const std::string text = read_file("/proc/%d/statm", process);
  unsigned long long size = 0, resident = 0, shared = 0;
  if (std::sscanf(text.c_str(), "%llu %llu %llu", &size, &resident, &shared) != 3) return 0;
  return (resident - std::min(resident, shared)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

// Ranges of [begin, end) whose granules are marked in the map; whole huge pages where `huge`.
void append_marked(int map, uint64_t begin, uint64_t end, bool huge, std::vector<Range>& out) {
  const uint64_t first = begin / kGranule, last = (end - 1) / kGranule;
  off_t at = static_cast<off_t>(first / 8);
  const off_t stop = static_cast<off_t>(last / 8) + 1;
  while (at < stop) {
    at = lseek(map, at, SEEK_DATA);
    if (at < 0 || at >= stop) return;
    unsigned char bits[4096];
    const ssize_t length = pread(map, bits, std::min(sizeof bits, static_cast<size_t>(stop - at)), at);
    if (length <= 0) return;
    for (ssize_t byte = 0; byte < length; ++byte) {
      for (unsigned bit = 0; bits[byte] != 0 && bit < 8; ++bit) {
        if ((bits[byte] >> bit & 1) == 0) continue;
        const uint64_t granule = static_cast<uint64_t>(at + byte) * 8 + bit;
        if (granule < first || granule > last) continue;
        uint64_t from = granule * kGranule, to = from + kGranule;
        if (huge) {
          from = from / kHuge * kHuge;
          to = from + kHuge;
        }
        from = std::max(from, begin);
        to = std::min(to, end);
        if (!out.empty() && out.back().end >= from) {
          out.back().end = std::max(out.back().end, to);
        } else {
          out.push_back({from, to});
        }
      }
    }
    at += length;
  }
}

// Bytes of all granules that are marked in the map: no more than these was ever served.
uint64_t marked_bytes(int map) {
  uint64_t granules = 0;
  for (off_t at = 0; (at = lseek(map, at, SEEK_DATA)) >= 0;) {
    unsigned char bits[4096];
    const ssize_t length = pread(map, bits, sizeof bits, at);
    if (length <= 0) break;
    for (ssize_t byte = 0; byte < length; ++byte)
      granules += static_cast<uint64_t>(std::popcount(bits[byte]));
    at += length;
  }
  return granules * kGranule;
}

uint64_t present_bytes(int pagemap, const std::vector<Range>& ranges) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  uint64_t pages = 0;
  for (const Range& range : ranges) {
    for (uint64_t at = range.begin / page; at < (range.end + page - 1) / page;) {
      uint64_t entries[2048];
      const size_t wanted = std::min<size_t>(2048, (range.end + page - 1) / page - at);
      const ssize_t length = pread(pagemap, entries, wanted * 8, static_cast<off_t>(at * 8));
      if (length <= 0) break;
      const size_t got = static_cast<size_t>(length) / 8;
      for (size_t i = 0; i < got; ++i) pages += entries[i] >> 63;
      at += got;
    }
  }
  return pages * page;
}

struct Mapping {
  uint64_t begin = 0, end = 0, rss = 0, anonymous = 0, huge = 0;
  std::string path;
  bool shared = false;
};

std::vector<Mapping> mappings(pid_t process) {
  std::vector<Mapping> found;
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/smaps", process);
  FILE* file = std::fopen(path, "re");
  if (file == nullptr) return found;
  char line[4400];
  while (std::fgets(line, sizeof line, file) != nullptr) {
    unsigned long long begin, end, kib;
    char rights[8];
    int at = 0;
    if (std::sscanf(line, "%llx-%llx %7s %*s %*s %*s %n", &begin, &end, rights, &at) >= 3) {
      Mapping mapping;
      mapping.begin = begin;
      mapping.end = end;
      mapping.shared = rights[3] == 's';
      mapping.path = line + at;
      while (!mapping.path.empty() && (mapping.path.back() == '\n' || mapping.path.back() == ' ')) {
        mapping.path.pop_back();
      }
      found.push_back(std::move(mapping));
    } else if (!found.empty()) {
      if (std::sscanf(line, "Rss: %llu", &kib) == 1) found.back().rss = kib << 10;
      if (std::sscanf(line, "Anonymous: %llu", &kib) == 1) found.back().anonymous = kib << 10;
      if (std::sscanf(line, "AnonHugePages: %llu", &kib) == 1) found.back().huge = kib << 10;
    }
  }
  std::fclose(file);
  return found;
}

// Memory that no file backs: private and anonymous. Some allocators map one of the kernel's nameless files.
bool is_memory(const Mapping& mapping) {
  return mapping.path.empty() || mapping.path == "[heap]" || mapping.path.starts_with("[anon");
}

bool is_nameless_file(const Mapping& mapping) {
  return mapping.path.starts_with("/memfd:") || mapping.path.starts_with("/dev/zero");
}

std::string map_path(const std::vector<Mapping>& all, const std::string& folder) {
  for (const Mapping& mapping : all) {
    if (mapping.path.starts_with(folder) && mapping.path.ends_with(".map")) return mapping.path;
  }
  return {};
}

int open_map(const std::string& path) { return path.empty() ? -1 : open(path.c_str(), O_RDONLY | O_CLOEXEC); }

uint64_t status_bytes(const std::string& status, const char* name) {
  const size_t at = status.find(name);
  unsigned long long kib = 0;
  if (at != std::string::npos) std::sscanf(status.c_str() + at + std::strlen(name), "%llu", &kib);
  return kib << 10;
}

void print_escaped(FILE* out, const std::string& text) {
  std::fputc('"', out);
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    if (byte >= 0x80) {  // as Python's file names have bytes that are not UTF-8
      std::fprintf(out, "\\udc%02x", byte);
    } else if (byte < 0x20 || byte == '"' || byte == '\\') {
      std::fprintf(out, "\\u%04x", byte);
    } else {
      std::fputc(byte, out);
    }
  }
  std::fputc('"', out);
}

}  // namespace

Share peak_of(pid_t process, const std::string& folder) {
  Share share;
  const std::string about = read_file("/proc/%d/status", process);
  const uint64_t peak = status_bytes(about, "\nVmHWM:");
  const uint64_t backed = status_bytes(about, "\nRssFile:") + status_bytes(about, "\nRssShmem:");
  share.anonymous = peak - std::min(peak, backed);
  const int map = open_map(map_path(mappings(process), folder));
  if (map < 0) return share;
  share.served = static_cast<int64_t>(std::min(share.anonymous, marked_bytes(map)));
  close(map);
  return share;
}

Share look_at(pid_t process, const std::string& folder) {
  Share share;
  const std::vector<Mapping> all = mappings(process);
  const std::string map_file = map_path(all, folder);
  const int map = open_map(map_file);
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/pagemap", process);
  const int pagemap = map < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC);
  if (map >= 0) share.served = 0;
  for (const Mapping& mapping : all) {
    const bool memory = is_memory(mapping) && !mapping.shared, nameless = is_nameless_file(mapping);
    const uint64_t held = nameless ? mapping.rss : mapping.anonymous;
    if ((!memory && !nameless) || held == 0) continue;
    std::vector<Range> ranges;
    if (map >= 0) append_marked(map, mapping.begin, mapping.end, mapping.huge > 0, ranges);
    uint64_t served = 0;
    if (pagemap >= 0) {
      served = present_bytes(pagemap, ranges);
    } else {
      for (const Range& range : ranges) served += range.end - range.begin;
    }
    served = std::min(served, held);
    if (map >= 0) share.served += static_cast<int64_t>(served);
    share.anonymous += nameless ? served : held;  // shared buffers are not what is asked about
  }
  if (pagemap >= 0) close(pagemap);
  if (map >= 0) close(map);
  // an exec on the way: what was read belongs to two programs
  if (map >= 0 && map_path(mappings(process), folder) != map_file) return Share{};
  return share;
}

bool Witness::seize(pid_t command) {
  const long options = PTRACE_O_TRACEFORK | PTRACE_O_TRACEVFORK | PTRACE_O_TRACECLONE | PTRACE_O_TRACEEXEC |
                       PTRACE_O_TRACEEXIT | PTRACE_O_EXITKILL;
  traces_ = ptrace(PTRACE_SEIZE, command, 0, options) == 0;
  return traces_;
}

int Witness::current(pid_t process) const {
  for (size_t index = images_.size(); index-- > 0;) {
    if (images_[index].process == process && !images_[index].ended) return static_cast<int>(index);
  }
  return -1;
}

int Witness::add(pid_t process, int parent, bool forked, double now) {
  if (images_.size() >= kMostImages) return -1;
  Image image;
  image.process = process;
  image.parent = parent;
  image.forked = forked;
  image.first_seen = image.last_seen = now;
  image.program = read_link("/proc/%d/exe", process);
  if (!forked) {
    image.preloaded = has_preload(process);
    image.secure = is_secure(process);
    image.elsewhere = read_link("/proc/%d/ns/mnt", process) != read_link("/proc/%d/ns/mnt", getpid()) ||
                      read_link("/proc/%d/root", process) != read_link("/proc/%d/root", getpid());
  }
  images_.push_back(std::move(image));
  return static_cast<int>(images_.size()) - 1;
}

void Witness::look(Image& image) {
  if (image.borrowed) return;
  const Share share = look_at(image.process, folder_);
  if (share.served < 0 && image.served >= 0) return;
  if (share.anonymous >= image.anonymous && (share.anonymous > 0 || share.served >= 0)) {
    image.anonymous = share.anonymous;
    image.served = share.served;
  }
}

bool Witness::on_status(pid_t process, int status, double now) {
  const int index = current(process);
  if (index >= 0) images_[static_cast<size_t>(index)].last_seen = now;
  if (!WIFSTOPPED(status)) {
    if (index >= 0) images_[static_cast<size_t>(index)].ended = true;
    return false;
  }
  const int event = status >> 16;
  int deliver = 0;
  unsigned long message = 0;
  switch (event) {
    case PTRACE_EVENT_EXEC: {
      if (index >= 0) images_[static_cast<size_t>(index)].ended = true;
      add(process, index, false, now);
      break;
    }
    case PTRACE_EVENT_FORK:
    case PTRACE_EVENT_VFORK:
    case PTRACE_EVENT_CLONE: {
      ptrace(PTRACE_GETEVENTMSG, process, 0, &message);
      const auto fresh = static_cast<pid_t>(message);
      const std::string about = read_file("/proc/%d/status", fresh);
      const size_t group = about.find("\nTgid:");
      const bool thread = event == PTRACE_EVENT_CLONE && group != std::string::npos &&
                          std::atoi(about.c_str() + group + 6) != fresh;
      if (!thread) {
        // the event may come from a thread, whose images are its process's
        const std::string own = read_file("/proc/%d/status", process);
        const size_t at = own.find("\nTgid:");
        const int parent = current(at == std::string::npos ? process : std::atoi(own.c_str() + at + 6));
        if (current(fresh) >= 0) break;  // its exec was heard of before its birth
        const int made = add(fresh, parent, true, now);
        if (made >= 0) images_[static_cast<size_t>(made)].borrowed = event == PTRACE_EVENT_VFORK;
      }
      break;
    }
    case PTRACE_EVENT_EXIT:
      if (index >= 0) {
        Image& image = images_[static_cast<size_t>(index)];
        look(image);  // its memory is still there
        // it may have grown and shrunk again between two looks
        const Share peak = image.borrowed ? Share{} : peak_of(process, folder_);
        if (static_cast<double>(peak.anonymous) > kGrowth * static_cast<double>(image.anonymous) + kGranule) {
          image.served = peak.served < 0 ? -1 : std::max(image.served, peak.served);
          image.anonymous = peak.anonymous;
        }
      }
      break;
    case PTRACE_EVENT_STOP:
      if (const int signal = WSTOPSIG(status);
          signal == SIGSTOP || signal == SIGTSTP || signal == SIGTTIN || signal == SIGTTOU) {
        ptrace(PTRACE_LISTEN, process, 0, 0);
        return true;
      }
      break;
    default:
      deliver = WSTOPSIG(status);
  }
  ptrace(PTRACE_CONT, process, 0, deliver);
  return true;
}

void Witness::tick(double now) {
  if (!traces_) find_by_polling(now);
  for (Image& image : images_) {
    if (image.ended || image.borrowed) continue;
    const uint64_t resident = resident_anonymous(image.process);
    if (resident == 0 || static_cast<double>(resident) < kGrowth * static_cast<double>(image.looked_at))
      continue;
    image.looked_at = resident;
    look(image);
  }
}

// An image is a process and its program; one with its parent's program is taken for a fork.
void Witness::find_by_polling(double now) {
  const std::vector<pid_t> alive = descendants(root_);
  for (Image& image : images_) {
    if (std::find(alive.begin(), alive.end(), image.process) == alive.end()) image.ended = true;
  }
  const std::string own = read_link("/proc/%d/exe", root_);
  for (pid_t process : alive) {
    const std::string program = read_link("/proc/%d/exe", process);
    if (program.empty() || program == own) continue;
    int index = current(process);
    if (index >= 0 && images_[static_cast<size_t>(index)].program == program) {
      images_[static_cast<size_t>(index)].last_seen = now;
      continue;
    }
    if (index >= 0) images_[static_cast<size_t>(index)].ended = true;
    const std::string stat = read_file("/proc/%d/stat", process);
    const size_t after = stat.rfind(')');
    const int parent = after == std::string::npos ? -1 : current(std::atoi(stat.c_str() + after + 4));
    const bool forked =
        parent >= 0 && images_[static_cast<size_t>(parent)].program == program && !has_preload(process);
    add(process, parent, forked, now);
  }
}

void Witness::report(FILE* out) const {
  std::fputc('[', out);
  const char* separator = "";
  for (const Image& image : images_) {
    std::fprintf(out, "%s{\"process\": %d, \"program\": ", separator, image.process);
    print_escaped(out, image.program);
    std::fprintf(out,
                 ", \"forked\": %s, \"parent\": %d, \"preloaded\": %s, \"secure\": %s, \"elsewhere\": %s, "
                 "\"lived\": %.6f, \"anonymous\": %" PRIu64 ", \"served\": %" PRId64 "}",
                 image.forked ? "true" : "false", image.parent, image.preloaded ? "true" : "false",
                 image.secure ? "true" : "false", image.elsewhere ? "true" : "false",
                 image.last_seen - image.first_seen, image.anonymous, image.served);
    separator = ", ";
  }
  std::fputc(']', out);
}

}  // namespace memoir::bench

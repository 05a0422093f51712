// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/memory_limit.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

#include "memoir/process/control/sandbox.h"

namespace memoir::malloc_ {

namespace {

constexpr Size kUnlimited = Size{1} << 60;  // what version 1 says is a little less than 2^63
constexpr int kMostGroups = 32;             // above one another
constexpr size_t kLongestPath = 1024;

/// The beginning of a file, as text; false where there is none.
template <size_t kRoom>
bool read_text(const char* path, char (&text)[kRoom]) noexcept {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return false;
  const ssize_t got = ::read(file, text, kRoom - 1);
  ::close(file);
  text[got > 0 ? got : 0] = '\0';
  return got > 0;
}

/// The number at the start of a text; kNone for anything else, such as "max".
Size number(const char* text) noexcept {
  while (*text == ' ' || *text == '\t') ++text;
  if (*text < '0' || *text > '9') return MemoryLimit::kNone;
  Size value = 0;
  for (; *text >= '0' && *text <= '9' && value < kUnlimited; ++text)
    value = value * 10 + static_cast<Size>(*text - '0');
  return value < kUnlimited ? value : MemoryLimit::kNone;
}

/// The number behind a word at the start of a line.
Size number_of(const char* text, const char* word) noexcept {
  const size_t length = std::strlen(word);
  for (const char* line = text; line != nullptr && *line != '\0';) {
    if (std::strncmp(line, word, length) == 0) return number(line + length);
    line = std::strchr(line, '\n');
    if (line != nullptr) ++line;
  }
  return MemoryLimit::kNone;
}

void tighten(MemoryLimit::Room& room, Size limit, Size used) noexcept {
  if (limit == MemoryLimit::kNone || used == MemoryLimit::kNone) return;
  const Size left = limit - std::min(limit, used);
  // Of two, the one that leaves less.
  if (room.limit == MemoryLimit::kNone || left < room.left) room = {limit, left};
}

/// One version's files.
struct Groups {
  const char *root, *used, *limits[2], *cache;
};
constexpr Groups kVersion2 = {
    "/sys/fs/cgroup", "memory.current", {"memory.max", "memory.high"}, "inactive_file "};
constexpr Groups kVersion1 = {"/sys/fs/cgroup/memory",
                              "memory.usage_in_bytes",
                              {"memory.limit_in_bytes", nullptr},
                              "total_inactive_file "};

/// A group and those above it. `path` loses its ends. What the system would drop of files counts as free.
void tighten_by(MemoryLimit::Room& room, const Groups& groups, char* path) noexcept {
  for (int level = 0; level < kMostGroups; ++level) {
    char file[kLongestPath + 64], text[64];
    const auto read = [&](const char* name) {
      std::snprintf(file, sizeof file, "%s%s/%s", groups.root, path, name);
      return read_text(file, text) ? number(text) : MemoryLimit::kNone;
    };
    Size limit = MemoryLimit::kNone;
    for (const char* name : groups.limits) {
      if (name != nullptr) limit = std::min(limit, read(name));
    }
    if (limit != MemoryLimit::kNone) {
      Size used = read(groups.used);
      char statistics[4096];
      std::snprintf(file, sizeof file, "%s%s/memory.stat", groups.root, path);
      if (used != MemoryLimit::kNone && read_text(file, statistics)) {
        const Size cache = number_of(statistics, groups.cache);
        if (cache != MemoryLimit::kNone) used -= std::min(used, cache);
      }
      tighten(room, limit, used);
    }
    char* const slash = std::strrchr(path, '/');
    if (slash == nullptr) return;
    *slash = '\0';
  }
}

void tighten_by_groups(MemoryLimit::Room& room) noexcept {
  char text[4096];
  if (!read_text("/proc/self/cgroup", text)) return;
  for (char* line = text; line != nullptr && *line != '\0';) {
    char* const next = std::strchr(line, '\n');
    if (next != nullptr) *next = '\0';
    char* const names = std::strchr(line, ':');
    char* const path = names != nullptr ? std::strchr(names + 1, ':') : nullptr;
    if (path != nullptr && std::strlen(path) < kLongestPath) {
      *path = '\0';
      // Version 2 has no names, version 1 a list of them.
      const bool second = names[1] == '\0', first = std::strstr(names + 1, "memory") != nullptr;
      if (std::strcmp(path + 1, "/") == 0) path[1] = '\0';
      if (second || first) tighten_by(room, second ? kVersion2 : kVersion1, path + 1);
    }
    line = next != nullptr ? next + 1 : nullptr;
  }
}

void tighten_by_machine(MemoryLimit::Room& room) noexcept {
  char text[1024];
  if (!read_text("/proc/meminfo", text)) return;
  const Size all = number_of(text, "MemTotal:"), left = number_of(text, "MemAvailable:");
  // Of a machine that others share, most is used in ordinary times.
  if (all == MemoryLimit::kNone || left == MemoryLimit::kNone || left > all / 20) return;
  tighten(room, all * kKiB, (all - left) * kKiB);
}

/// Bytes of the program in memory.
Size resident_now(Size otherwise) noexcept {
  char text[128];
  if (!read_text("/proc/self/statm", text)) return otherwise;
  const char* const second = std::strchr(text, ' ');
  const Size pages = second != nullptr ? number(second) : MemoryLimit::kNone;
  return pages == MemoryLimit::kNone ? otherwise : pages * static_cast<Size>(::sysconf(_SC_PAGESIZE));
}

}  // namespace

MemoryLimit::Room MemoryLimit::read(Size resident) noexcept {
  const int kept = errno;
  Room room;
  const bool files = host_control::may_open_files();
  if (by_hand_ != kNone) tighten(room, by_hand_, files ? resident_now(resident) : resident);
  if (files) {
    tighten_by_groups(room);
    tighten_by_machine(room);
  } else if (by_hand_ == kNone) {
    // What was read before the program entered a filter: as if nobody else had grown since.
    const Size limit = limit_.load(std::memory_order_relaxed);
    if (limit != kNone) tighten(room, limit, resident);
  }
  errno = kept;
  return room;
}

void MemoryLimit::looked(const Room& room, Size resident) noexcept {
  limit_.store(room.limit, std::memory_order_relaxed);
  left_.store(room.left, std::memory_order_relaxed);
  near_.store(room.near(), std::memory_order_relaxed);
  // Others grow too: half of the way to 85 % is looked at again. Near it, each 64th of the limit.
  constexpr Size kLeast = 4 * kMiB;
  Size step = std::max(kFirstLook, resident / 4);
  if (room.limit != kNone) {
    const Size share = room.limit / 100 * 15, way = room.left > share ? (room.left - share) / 2 : 0;
    step = std::min(step, std::max({way, room.limit / 64, std::min(kLeast, room.limit / 16)}));
  }
  look_at_.store(resident + step, std::memory_order_relaxed);
}

}  // namespace memoir::malloc_

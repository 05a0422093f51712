// SPDX-License-Identifier: Apache-2.0
#include "tree.h"

#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace memoir::bench {

namespace {

// Appends the children of every thread of `process`: any thread may fork.
void append_children(pid_t process, std::vector<pid_t>& out) {
  char path[64];
  std::snprintf(path, sizeof path, "/proc/%d/task", process);
  DIR* threads = opendir(path);
  if (threads == nullptr) return;
  while (const dirent* entry = readdir(threads)) {
    if (entry->d_name[0] == '.') continue;
    char file[384];
    std::snprintf(file, sizeof file, "%s/%s/children", path, entry->d_name);
    FILE* children = std::fopen(file, "re");
    if (children == nullptr) continue;
    int child;
    while (std::fscanf(children, "%d", &child) == 1) out.push_back(child);
    std::fclose(children);
  }
  closedir(threads);
}

}  // namespace

std::vector<pid_t> descendants(pid_t root) {
  std::vector<pid_t> found;
  append_children(root, found);
  for (size_t next = 0; next < found.size(); ++next) append_children(found[next], found);
  return found;
}

uint64_t resident_bytes(pid_t process) {
  char path[64], text[128];
  std::snprintf(path, sizeof path, "/proc/%d/statm", process);
  const int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) return 0;
  const ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  if (length <= 0) return 0;
  text[length] = '\0';
  char* rest = text;
  std::strtoull(text, &rest, 10);  // the first number is the virtual size
  return std::strtoull(rest, nullptr, 10) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

}  // namespace memoir::bench

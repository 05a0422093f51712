// SPDX-License-Identifier: Apache-2.0
// Follows a process tree and says of each executed image how much of its anonymous memory an allocator
// served.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

namespace memoir::bench {

// One program in one process, from its exec (or fork) to the next exec or the end.
struct Image {
  pid_t process = 0;
  std::string program;     // /proc/PID/exe
  bool forked = false;     // its parent's memory in another process: it never met the loader
  bool borrowed = false;   // vfork: its memory is its parent's until it calls exec
  int parent = -1;         // index of the image that it was forked from, or that called exec
  bool preloaded = false;  // LD_PRELOAD was in the environment that exec was given
  bool secure = false;     // the loader runs in secure mode (setuid, capabilities): it ignores LD_PRELOAD
  bool elsewhere = false;  // another root or mount namespace: a sandbox, a container
  bool ended = false;
  double first_seen = 0.0, last_seen = 0.0;
  uint64_t looked_at = 0;  // resident bytes at the last look
  uint64_t anonymous = 0;  // bytes, of the look that saw most of them
  int64_t served = -1;     // of these, in ranges that the allocator handed out; -1: no probe in it
};

// Bytes of a process's anonymous memory, and of the part of it that the probe's map marks.
struct Share {
  uint64_t anonymous = 0;
  int64_t served = -1;
};

// `folder`: where libmemoir_proof.so keeps the maps of what was handed out (see proof.cc).
Share look_at(pid_t process, const std::string& folder);

// The same of the moment when it held most, as far as that can be told later: the kernel keeps its peak, and
// no more than what is marked was served. For a process that is about to end.
Share peak_of(pid_t process, const std::string& folder);

// With ptrace, which misses no exec however short its process; where that is not allowed, by looking every
// millisecond. Not thread-safe.
class Witness {
 public:
  Witness(std::string folder, pid_t root) : folder_(std::move(folder)), root_(root) {}

  // Before the command's exec. False: it is not allowed, and polls.
  bool seize(pid_t command);
  bool traces() const { return traces_; }

  // A status that waitpid gave. True when it was a stop, and the process goes on.
  bool on_status(pid_t process, int status, double now);

  // Every millisecond or so: looks at whoever has grown.
  void tick(double now);

  void report(FILE* out) const;  // a JSON array

 private:
  int current(pid_t process) const;
  int add(pid_t process, int parent, bool forked, double now);
  void look(Image& image);
  void find_by_polling(double now);

  std::string folder_;
  pid_t root_;
  bool traces_ = false;
  std::vector<Image> images_;
};

}  // namespace memoir::bench

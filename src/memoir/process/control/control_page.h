// SPDX-License-Identifier: Apache-2.0
//
// What can be switched on in a running process from outside: a page of a file that the process maps. Only its
// user may write the file. There is no thread, no signal and no debugger: the process looks at the page as it
// allocates.
//
//   /dev/shm/memoir-<uid>/<pid>      | ControlPage | ... | sample image, while something is sampled |
//                                      0                   kImageBegin
//
// Whoever asks writes `every` or `output`, then `mode`, then makes `asked` one more; the process acts at its
// next allocation and copies `asked` to `answered`. One at a time asks: they lock the file.
#pragma once

#include <atomic>
#include <cstdint>

#include "memoir/base/units.h"

namespace memoir::host_control {

inline constexpr std::uint64_t kMagic = 0x6f7274636f6d656d;  // "memoctro"
inline constexpr std::uint32_t kVersion = 1;                 // of the page and of what follows it
inline constexpr Size kImageBegin = 64 * kKiB;

enum class Ask : std::uint32_t { kDormant = 0, kEverything = 1, kLifetimes = 2 };

struct alignas(4096) ControlPage {
  std::atomic<std::uint64_t> magic{0};  // last
  std::uint32_t version = 0;
  std::uint32_t process = 0;
  std::atomic<std::uint32_t> asked{1};
  std::atomic<std::uint32_t> answered{1};
  std::atomic<std::uint32_t> mode{0};    // what is asked, an Ask
  std::atomic<std::uint32_t> failed{0};  // the errno of the answer; 0: done
  std::atomic<std::uint32_t> ended{0};   // the program ended, or became another one
  std::uint32_t reserved = 0;
  Size every = 0;           // for kLifetimes: bytes between samples
  char program[1024] = {};  // its executable
  char output[1024] = {};   // for kEverything: the trace to write
};
static_assert(sizeof(ControlPage) == 4096);

/// Lies in the library itself; open_control() maps the file over it.
extern ControlPage control_page __attribute__((visibility("hidden")));
/// The last `asked` that this process acted on; for whoever settles that, one thread at a time.
extern std::uint32_t answered;

/// Never 0. For every allocation: one load.
inline std::uint32_t asked() noexcept { return control_page.asked.load(std::memory_order_relaxed); }

/// Creates the file and maps it. `folder`: where, or nullptr for the user's own in /dev/shm, which is made;
/// where that name is somebody else's, another one is.
/// With `keep` a file of an earlier program of the same process stays, and this one is called <pid>.2, say.
/// False when that cannot be: nothing can be asked then. For one thread; no malloc.
bool open_control(const char* folder, bool keep) noexcept;
/// In a forked child, whose page is its parent's: takes an empty one of its own.
void leave_control() noexcept;
/// Removes the file. The mapping stays.
void remove_control() noexcept;

/// Addresses for the `size` bytes behind kImageBegin, or nullptr; the same at each call.
void* map_image(Size size) noexcept;
/// Puts memory behind bytes [begin, end) of the image. False when there is none: a full disk, a limit.
bool take_image(void*, Size begin, Size end) noexcept;

}  // namespace memoir::host_control

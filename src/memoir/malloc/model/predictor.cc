// SPDX-License-Identifier: Apache-2.0
#include "memoir/malloc/model/predictor.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "memoir/process/control/modules.h"
#include "memoir/process/stacks/stack_walker.h"
#include "memoir/process/stacks/thread_stack.h"

namespace memoir::malloc_ {

namespace {

static_assert(Foreseen::kStages == model_format::kStages);

/// They are there until the process ends: the background may use them after static objects are destroyed.
constinit Lasting<stacks::StackTables> lasting_tables;
constexpr stacks::StackTables& tables = lasting_tables.value;

void complain(const char* path, const char* why) noexcept {
  char line[1400];
  const int length =
      std::snprintf(line, sizeof line, "memoir: %s: %s; the program runs without a model\n", path, why);
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line, static_cast<size_t>(length));
}

/// The end of what may be read from `begin` on without a fault, at most `end`: whole pages, asked of the
/// kernel. The program may run on a stack that is not its thread's own (coroutines), whose end nobody knows.
stacks::Address readable_until(const ModelHost& host, stacks::Address begin, stacks::Address end) noexcept {
  constexpr size_t kAtOnce = 64;
  constexpr stacks::Address kPage = 4096, kMostStack = stacks::Address{16} << 20;
  if (begin >= end || end - begin > kMostStack || !host.may_call_all()) return begin;
  for (stacks::Address page = begin / kPage * kPage; page < end;) {
    char bytes[kAtOnce];
    iovec pages[kAtOnce];
    size_t count = 0;
    for (stacks::Address at = page; at < end && count < kAtOnce; at += kPage)
      pages[count++] = {reinterpret_cast<void*>(at), 1};
    const iovec to{bytes, count};
    const ssize_t got = ::process_vm_readv(::getpid(), &to, 1, pages, count, 0);
    if (got < static_cast<ssize_t>(count))
      return got <= 0 ? std::max(page, begin) : page + static_cast<size_t>(got) * kPage;
    page += count * kPage;
  }
  return end;
}

/// What the heights of threads, but the main one, count from in this process and not in a profile.
Size pointer_above_frames(const ModelHost& host, stacks::StackWalker& walker) noexcept {
  const auto frame = reinterpret_cast<stacks::Address>(__builtin_frame_address(0));
  const stacks::StackWalker::Entry entry{frame + sizeof(void*),
                                         *reinterpret_cast<const stacks::Address*>(frame)};
  const auto end = reinterpret_cast<stacks::Address>(__builtin_thread_pointer());
  walker.start(tables, frame, readable_until(host, frame, end));
  walker.capture(entry);
  stacks::Frame frames[stacks::StackWalker::kMost + 2];
  const unsigned count = walker.last_frames(frames);
  const bool is_whole = count > 0 && stacks::kind_of(frames[count - 1]) == stacks::FrameKind::kNative;
  return is_whole ? stacks::pointer_above_frames(walker.last_slot(count - 1)) : 0;
}

/// One more. Of the owner.
void count(OwnersWord<Size>& word) noexcept { word = word + 1; }

}  // namespace

/// The background, at work on what it alone has.
class Predictor::Working {
 public:
  explicit Working(Predictor& self) noexcept : self_(self) { set(true); }
  ~Working() { set(false); }
  Working(const Working&) = delete;
  Working& operator=(const Working&) = delete;

 private:
  void set(bool working) noexcept {
    const LockGuard guard(self_.lock_);
    self_.working_ = working;
  }
  Predictor& self_;
};

Foreseen Predictor::figures() const noexcept {
  Foreseen now;
  now.known = counts_.known;
  now.asked = counts_.asked;
  now.long_lived = counts_.long_lived;
  std::copy(std::begin(counts_.by_stage), std::end(counts_.by_stage), now.by_stage);
  return now;
}

bool Predictor::read_file(const char* path) noexcept {
  const int file = ::open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  if (file < 0 || ::fstat(file, &status) != 0 || !S_ISREG(status.st_mode)) {
    if (file >= 0) ::close(file);
    complain(path, "cannot be read");
    return false;
  }
  const auto size = static_cast<Size>(std::max<off_t>(status.st_size, 0));
  if (size == 0 || size > model_format::kMostFile) {
    ::close(file);
    complain(path, "is not a model");
    return false;
  }
  // A copy, not a mapping: whoever cuts the file meanwhile must not end the program.
  char* const bytes = static_cast<char*>(map_metadata(size));
  Size got = 0;
  while (bytes != nullptr && got < size) {
    const ssize_t more = ::read(file, bytes + got, size - got);
    if (more <= 0) break;
    got += static_cast<Size>(more);
  }
  ::close(file);
  const char* why = bytes == nullptr ? "there is no memory for it" : model_.open({bytes, got});
  if (why == nullptr) return true;
  complain(path, why);
  if (bytes != nullptr) unmap_metadata(bytes, size);
  return false;
}

bool Predictor::begin(const ModelHost& host, const char* path) noexcept {
  const Working working(*this);
  host_ = &host;
  if (!read_file(path) || model_.one_class()) return false;
  char program[4096];
  const ssize_t length = ::readlink("/proc/self/exe", program, sizeof program);
  if (length > 0) program_ = model_.program({program, static_cast<size_t>(length)});
  walker_ = map_metadata(sizeof(stacks::StackWalker));
  name_cache_ = static_cast<NameCache*>(map_metadata(sizeof(NameCache)));  // zeros: an empty one
  if (walker_ == nullptr || name_cache_ == nullptr || !pending_.reserve(kMostPending) || !tables.start())
    return false;
  tell_known();
  active_.store(true, std::memory_order_release);
  return true;
}

void Predictor::tell(ContextKey key, const LifetimeModel::Prediction& prediction) noexcept {
  seen_[key / 64].fetch_or(std::uint64_t{1} << key % 64, std::memory_order_relaxed);
  const bool is_long = model_.calls_long(prediction);
  const auto predicted = is_long ? LifetimeClass::kLong : LifetimeClass::kShort;
  if (host_->expect(key, predicted, prediction.long_lived, model_.settings().prior_worth))
    counts_.long_lived = counts_.long_lived + is_long;
}

void Predictor::tell_known() noexcept {
  struct Visit {
    Predictor& self;
    Size above_frames;
  } visit{*this, pointer_above_frames(*host_, *static_cast<stacks::StackWalker*>(walker_))};
  host_control::visit_code(
      [](void* data, const host_control::CodeMapping& mapping) noexcept {
        auto& [self, above_frames] = *static_cast<Visit*>(data);
        const std::uint32_t module = self.model_.module_of({mapping.id, mapping.id_size});
        if (module == LifetimeModel::kNoModule) return true;
        const auto all = self.model_.addresses();
        const auto first = std::lower_bound(
            all.begin(), all.end(), module,
            [](const model_format::Address& one, std::uint32_t wanted) { return one.module < wanted; });
        for (auto one = first; one != all.end() && one->module == module; ++one) {
          const std::uintptr_t place = mapping.bias + one->offset;
          if (one->height == 0 || place < mapping.begin || place >= mapping.end) continue;
          const LifetimeModel::Prediction prediction = self.model_.predict(*one);
          self.tell(ContextTable::key_of(place, one->height), prediction);
          if (above_frames != 0)
            self.tell(ContextTable::key_of(place, one->height + above_frames), prediction);
          count(self.counts_.known);
        }
        return true;
      },
      &visit);
}

bool Predictor::remember(ContextKey key, Size size, std::uintptr_t stack_base) noexcept {
  if (!lock_.try_lock()) return false;  // the context's next sample comes here again
  const int kept = errno;
  bool room = waiting_ < kMostPending;
  if (room) {
    using stacks::Address;
    // Behind this frame are those of this library and of the malloc, then the program's.
    const auto frame = reinterpret_cast<Address>(__builtin_frame_address(0));
    const stacks::StackWalker::Entry entry{frame + sizeof(void*), *reinterpret_cast<const Address*>(frame)};
    auto& walker = *static_cast<stacks::StackWalker*>(walker_);
    walker.start(tables, frame, readable_until(*host_, frame, stack_base));
    walker.capture(entry);
    stacks::Frame frames[stacks::StackWalker::kMost + 2];
    const unsigned count = walker.last_frames(frames);
    const auto holds = [](const stacks::LoadedModule* module, Address frame) {
      return module != nullptr && module->path[0] != '\0' && frame >= module->begin && frame < module->end;
    };
    const stacks::LoadedModule* const own = tables.modules().find(reinterpret_cast<Address>(&complain));
    const stacks::LoadedModule* const host = tables.modules().find(reinterpret_cast<Address>(host_->expect));
    Pending one;
    one.key = key;
    one.size = size;
    one.count = 0;
    bool inside = true;
    for (unsigned i = 0; i < count && one.count < kMostFrames; ++i) {
      if (stacks::kind_of(frames[i]) != stacks::FrameKind::kNative) continue;
      inside = inside && (holds(own, frames[i]) || holds(host, frames[i]));
      if (!inside) one.frames[one.count++] = frames[i];
    }
    room = one.count > 0 && pending_.push_back(one);
    waiting_ = pending_.size();
    seen_[key / 64].fetch_or(std::uint64_t{1} << key % 64, std::memory_order_relaxed);
  }
  lock_.unlock();
  errno = kept;
  return room;
}

void Predictor::predict(const Pending& one) noexcept {
  count(counts_.asked);
  std::string_view names[kMostFrames];
  for (std::uint32_t i = 0; i < one.count; ++i) {
    if (const stacks::LoadedModule* const module = tables.modules().find(one.frames[i] - 1))
      names[i] = names_.find(*module, one.frames[i]);
  }
  const ModelStack stack({names, one.count}, model_.key(), name_cache_);
  LifetimeModel::Query query;
  query.size = one.size;
  query.program = program_;
  if (stack.skipped() < one.count) {
    const std::uintptr_t place = one.frames[stack.skipped()];
    if (const stacks::LoadedModule* const module = tables.modules().find(place - 1)) {
      query.module = model_.module_of({module->build_id, module->build_id_size});
      query.offset = place - module->bias;
    }
  }
  const LifetimeModel::Prediction prediction = model_.predict(stack, query);
  if (prediction.stage == LifetimeModel::kAbstains) return;
  count(counts_.by_stage[prediction.stage]);
  tell(one.key, prediction);
}

/// Where the parent's background was at work, what that changed may be half done.
bool Predictor::after_fork() noexcept {
  if (std::exchange(working_, false)) active_.store(false, std::memory_order_release);
  if (active()) tables.after_fork();
  return active();
}

bool Predictor::take_pending(Pending& out, bool first) noexcept {
  const LockGuard guard(lock_);
  if (waiting_ == 0) return false;
  if (first) tables.look_for_unloaded();
  out = pending_[--waiting_];
  pending_.resize_down(waiting_);
  return true;
}

bool Predictor::answer() noexcept {
  if (!active() || !host_->may_open_files()) return false;
  const Working working(*this);
  Pending one;
  bool any = false;
  while (take_pending(one, !any)) {
    any = true;
    predict(one);
  }
  if (any) names_.forget_pages();
  return any;
}

}  // namespace memoir::malloc_

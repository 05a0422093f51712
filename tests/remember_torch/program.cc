// SPDX-License-Identifier: Apache-2.0
#include "remember_torch/program.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "memoir/plan/files/from_trace.h"
#include "memoir/plan/simple/planners.h"
#include "memoir/remember/slab/address_space.h"
#include "memoir/trace/read/trace.h"

namespace memoir {

namespace {

// Relaxed: they must not order the threads' other accesses, or they hide races from the thread sanitizer.
std::atomic<std::int64_t> g_mismatches{0};
std::atomic<std::uint64_t> g_numbers{1};

std::uint64_t byte_pattern(std::uint64_t number, size_t at) noexcept { return (number >> at % 8 * 8) & 0xff; }

struct EndRecording {
  ~EndRecording() { torch_door::end_recording(); }
};

}  // namespace

Tensor::Tensor(size_t bytes)
    : data_(c10::GetCPUAllocator()->allocate(bytes)),
      bytes_(bytes),
      number_(g_numbers.fetch_add(1, std::memory_order_relaxed) * 0x9e3779b97f4a7c15ull) {
  auto* const out = static_cast<unsigned char*>(data_.get());
  for (size_t at = 0; at < bytes; ++at) out[at] = static_cast<unsigned char>(byte_pattern(number_, at));
}

Tensor::Tensor(Tensor&& other) noexcept
    : data_(std::move(other.data_)), bytes_(std::exchange(other.bytes_, 0)), number_(other.number_) {
  other.data_.clear();
}

Tensor& Tensor::operator=(Tensor&& other) noexcept {
  if (this == &other) return *this;
  reset();
  data_ = std::move(other.data_);
  other.data_.clear();
  bytes_ = std::exchange(other.bytes_, 0);
  number_ = other.number_;
  return *this;
}

void Tensor::reset() noexcept {
  if (!holds_its_bytes()) g_mismatches.fetch_add(1, std::memory_order_relaxed);
  bytes_ = 0;
  data_.clear();
}

bool Tensor::holds_its_bytes() const noexcept {
  const auto* const in = static_cast<const unsigned char*>(data_.get());
  for (size_t at = 0; at < bytes_; ++at) {
    if (in[at] != byte_pattern(number_, at)) return false;
  }
  return true;
}

Tensor Tensor::clone() const {
  Tensor copy;
  copy.data_ = c10::GetCPUAllocator()->clone(data_.get(), bytes_);
  copy.bytes_ = bytes_;
  copy.number_ = number_;
  return copy;
}

bool Tensor::in_memoirs_memory() const noexcept { return AddressSpace::instance().contains(data_.get()); }

std::int64_t Tensor::mismatches() noexcept { return g_mismatches.load(std::memory_order_relaxed); }

Layout record(const std::function<void()>& body, bool large_apart) {
  Recorder recorder;
  {
    torch_door::begin_recording(recorder, large_apart,
                                torch_door::Whereabouts::of(__builtin_frame_address(0)).value());
    const EndRecording end;
    recorder.pass_begin(1);
    body();
    recorder.pass_end(1);
  }
  const Trace trace = Trace::from_bytes(recorder.writer().bytes());  // checks that ids and frees are sound
  const RecordedPass pass = read_pass(trace.events());
  std::string_view planner;
  const Plan plan = plan_quickly(pass.problem, &planner);
  return std::make_shared<const PlannedLayout>(record_plan(pass, plan, planner));
}

bool follow(SlabSet& slabs, const Layout& layout, bool scoped, const std::function<void()>& body,
            torch_door::PassResult& result) {
  Slab* const slab = slabs.acquire(layout);
  if (slab == nullptr) {
    body();
    return false;
  }
  torch_door::begin_planned(*slab, scoped);
  struct End {
    SlabSet& slabs;
    Slab* slab;
    torch_door::PassResult& result;
    ~End() {
      result = torch_door::end_planned();
      slabs.give_back(slab);
    }
  } const end{slabs, slab, result};
  body();
  return true;
}

Tensor network(int layers, int extra) {
  Tensor current(1000);
  for (int layer = 0; layer < layers; ++layer) {
    const size_t size = 4096 + static_cast<size_t>(layer % 5) * 1500;
    Tensor convolved;
    {
      const Op op("aten::conv2d");
      const Op inner("aten::empty");
      convolved = Tensor(size);
      const Tensor workspace(2 * size), nothing(0);
    }
    if (layer == extra) {
      const Op op("aten::dropout");
      const Tensor mask(size / 2);
    }
    const Op op("aten::relu_" + std::to_string(layer));  // a name that ends with its scope
    current = Tensor(size);
  }
  return current;
}

}  // namespace memoir

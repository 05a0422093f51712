// SPDX-License-Identifier: Apache-2.0
#include "memories.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "memoir_static_tensors.h"

namespace example {

namespace {

[[noreturn]] void give_up(const char* why) {
  std::fprintf(stderr, "the decoder needs more memory: %s\n", why);
  std::exit(1);
}

std::size_t aligned(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

class MallocMemory final : public Memory {
 public:
  Handle create(std::size_t bytes) override {
    void* const data = std::aligned_alloc(64, aligned(bytes));
    auto* const buffer = static_cast<Buffer*>(std::malloc(sizeof(Buffer)));
    if (data == nullptr || buffer == nullptr) give_up("malloc refuses");
    *buffer = {data, 0};
    return describe(buffer, static_cast<std::byte*>(data));
  }
  Handle view(Handle of, std::size_t offset, std::size_t) override {
    auto* const tensor = static_cast<Tensor*>(of);
    return describe(tensor->buffer, tensor->data + offset);
  }
  void release(Handle handle) override {
    auto* const tensor = static_cast<Tensor*>(handle);
    if (--tensor->buffer->references == 0) {
      std::free(tensor->buffer->data);
      std::free(tensor->buffer);
    }
    std::free(tensor);
  }
  float* data(Handle handle) override { return reinterpret_cast<float*>(static_cast<Tensor*>(handle)->data); }

 private:
  struct Buffer {
    void* data;
    int references;
  };
  struct Tensor {
    Buffer* buffer;
    std::byte* data;
  };

  static Handle describe(Buffer* buffer, std::byte* data) {
    auto* const tensor = static_cast<Tensor*>(std::malloc(sizeof(Tensor)));
    if (tensor == nullptr) give_up("malloc refuses");
    ++buffer->references;
    *tensor = {buffer, data};
    return tensor;
  }
};

class ScannedMemory final : public Memory {
 public:
  ScannedMemory(std::size_t pool, std::size_t objects)
      : tensors_(objects),
        buffers_(objects),
        free_(objects + 1),
        pool_(static_cast<std::byte*>(std::aligned_alloc(4096, pool))) {
    if (pool_ == nullptr) give_up("the pool could not be secured");
    for (std::size_t at = 0; at < pool; at += 4096) pool_[at] = {};
    free_[0] = {pool_, pool, kNone, true};
    head_ = 0;
  }
  ~ScannedMemory() override { std::free(pool_); }

  Handle create(std::size_t bytes) override {
    const std::size_t size = aligned(bytes);
    int best = kNone, before_best = kNone;
    for (int at = head_, before = kNone; at != kNone; before = at, at = free_[at].next) {
      if (free_[at].size >= size && (best == kNone || free_[at].size <= free_[best].size)) {
        best = at;
        before_best = before;
      }
    }
    if (best == kNone) give_up("the pool is full");
    std::byte* const data = free_[best].data;
    if (free_[best].size - size >= 64) {
      free_[best].data += size;
      free_[best].size -= size;
    } else {
      unlink(before_best, best);
    }
    const int buffer = first([](const Buffer& one) { return one.references == 0; }, buffers_);
    buffers_[buffer] = {data, size, 0};
    return describe(buffer, data);
  }
  Handle view(Handle of, std::size_t offset, std::size_t) override {
    auto* const tensor = static_cast<Tensor*>(of);
    return describe(tensor->buffer, tensor->data + offset);
  }
  void release(Handle handle) override {
    auto* const tensor = static_cast<Tensor*>(handle);
    tensor->data = nullptr;
    Buffer& buffer = buffers_[tensor->buffer];
    if (--buffer.references != 0) return;
    int before = kNone, after = head_;
    while (after != kNone && free_[after].data < buffer.data) {
      before = after;
      after = free_[after].next;
    }
    const int made = first([](const Range& one) { return !one.used; }, free_);
    free_[made] = {buffer.data, buffer.size, after, true};
    (before == kNone ? head_ : free_[before].next) = made;
    if (after != kNone && free_[made].data + free_[made].size == free_[after].data) {
      free_[made].size += free_[after].size;
      unlink(made, after);
    }
    if (before != kNone && free_[before].data + free_[before].size == free_[made].data) {
      free_[before].size += free_[made].size;
      unlink(before, made);
    }
  }
  float* data(Handle handle) override { return reinterpret_cast<float*>(static_cast<Tensor*>(handle)->data); }

 private:
  static constexpr int kNone = -1;
  struct Tensor {
    int buffer = kNone;
    std::byte* data = nullptr;  // nullptr: not in use
  };
  struct Buffer {
    std::byte* data = nullptr;
    std::size_t size = 0;
    int references = 0;
  };
  struct Range {
    std::byte* data = nullptr;
    std::size_t size = 0;
    int next = kNone;
    bool used = false;
  };

  template <class Is, class Array>
  static int first(Is is, const Array& array) {
    for (std::size_t i = 0; i < array.size(); ++i) {
      if (is(array[i])) return static_cast<int>(i);
    }
    give_up("every object is in use");
  }
  Handle describe(int buffer, std::byte* data) {
    Tensor& tensor = tensors_[first([](const Tensor& one) { return one.data == nullptr; }, tensors_)];
    ++buffers_[buffer].references;
    tensor = {buffer, data};
    return &tensor;
  }
  void unlink(int before, int at) {
    (before == kNone ? head_ : free_[before].next) = free_[at].next;
    free_[at].used = false;
  }

  std::vector<Tensor> tensors_;
  std::vector<Buffer> buffers_;
  std::vector<Range> free_;
  std::byte* pool_;
  int head_ = kNone;
};

class MemoirMemory final : public Memory {
 public:
  MemoirMemory(std::size_t pool, std::size_t objects) {
    const memoir_static_tensors_sizes sizes = {
        .pool = pool, .tensors = objects, .buffers = objects, .alignment = 64};
    const char* why = "";
    pool_ = memoir_static_tensors_create(&sizes, &why);
    if (pool_ == nullptr) give_up(why);
  }
  ~MemoirMemory() override { memoir_static_tensors_destroy(pool_); }

  Handle create(std::size_t bytes) override { return checked(memoir_tensor_new(pool_, bytes)); }
  Handle view(Handle of, std::size_t offset, std::size_t bytes) override {
    return checked(memoir_tensor_new_view(pool_, static_cast<memoir_tensor*>(of), offset, bytes));
  }
  void release(Handle tensor) override { memoir_tensor_release(pool_, static_cast<memoir_tensor*>(tensor)); }
  float* data(Handle tensor) override {
    return static_cast<float*>(memoir_tensor_data(static_cast<memoir_tensor*>(tensor)));
  }

 private:
  Handle checked(memoir_tensor* tensor) {
    if (tensor == nullptr) give_up(memoir_static_tensors_why(pool_));
    return tensor;
  }

  memoir_static_tensors* pool_;
};

}  // namespace

std::unique_ptr<Memory> make_malloc_memory() { return std::make_unique<MallocMemory>(); }
std::unique_ptr<Memory> make_scanned_memory(std::size_t pool, std::size_t objects) {
  return std::make_unique<ScannedMemory>(pool, objects);
}
std::unique_ptr<Memory> make_memoir_memory(std::size_t pool, std::size_t objects) {
  return std::make_unique<MemoirMemory>(pool, objects);
}

}  // namespace example

// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "doctest/doctest.h"
#include "memoir/arena/cuda_arena.h"
#include "support/fake_cuda/fake.h"

using namespace memoir;

namespace {

constexpr Size kGranule = 2 * kMiB;

struct Quiet final : DeviceQuiet {
  bool wait() noexcept override {
    ++waits;
    if (possible) fake_run_all();
    return possible;
  }
  int waits = 0;
  bool possible = true;
};

struct Watch final : DeviceWatch {
  void taken(Size size) noexcept override { held += size; }
  void given_back(Size size) noexcept override { held -= size; }
  void placed(Range addresses, bool) noexcept override { mapped += addresses.size; }
  void removed(Range addresses, bool) noexcept override { mapped -= addresses.size; }
  Size held = 0, mapped = 0;
};

}  // namespace

TEST_CASE("a device says what it is, and which devices there are not") {
  fake::fresh(64 * kMiB);
  CudaDevice device(0);
  REQUIRE(device.ok());
  CHECK(std::string(device.name()) == "Fake GPU 0");
  CHECK(device.total() == 64 * kMiB);
  CHECK(device.cap() == 64 * kMiB);
  CHECK(device.granularity() == kGranule);
  CHECK(device.free_now() == 64 * kMiB);
  CudaDevice other(1);
  CHECK_FALSE(other.ok());
  CHECK(std::string(other.problem()) == "there is no CUDA device 1: the driver shows 1");
  fake_fail("cuDevicePrimaryCtxRetain", 0, 1, 999);
  CHECK(std::string(CudaDevice(0).problem()) == "CUDA device 0 cannot be used: CUDA_ERROR_UNKNOWN");
  CHECK(fake::misuses() == "");
}

TEST_CASE("what is committed can be used, what is decommitted is given back, granule by granule") {
  fake::fresh();
  {
    CudaDevice device(0);
    Watch watch;
    device.set_watch(&watch);
    CudaArena arena(device, 100 * kMiB);
    REQUIRE(arena.ok());
    CHECK(arena.granule() == kGranule);
    CHECK(arena.capacity() == 100 * kMiB);
    CHECK(fake_used(0) == 0);
    REQUIRE(arena.commit({kGranule + 5, 2 * kGranule}));  // touches three granules
    CHECK(arena.committed() == 3 * kGranule);
    CHECK(fake_used(0) == 3 * kGranule);
    CHECK(device.held() == 3 * kGranule);
    CHECK(watch.held == 3 * kGranule);
    std::memset(reinterpret_cast<void*>(arena.base() + kGranule), 7, 3 * kGranule);
    CHECK(arena.commit({kGranule, 3 * kGranule}));  // it is there
    CHECK(fake_calls("cuMemCreate") == 3);
    CHECK(fake_calls("cuMemSetAccess") == 1);
    CHECK_FALSE(arena.commit({99 * kMiB, 2 * kMiB}));  // leaves the arena
    CHECK_FALSE(arena.commit({0, 0}));
    arena.decommit({kGranule + 1, 2 * kGranule});  // one granule is wholly inside
    CHECK(arena.committed() == 2 * kGranule);
    CHECK(fake_used(0) == 2 * kGranule);
    arena.decommit({0, arena.capacity()});
    arena.decommit({0, arena.capacity()});
    CHECK(fake_used(0) == 0);
    CHECK(device.counts().commits == 3);
    CHECK(device.counts().decommits == 3);
    CHECK(arena.commit({0, 1}));  // goes back with the arena
  }
  CHECK(fake_live_things() == 0);
  CHECK(fake::misuses() == "");
}

TEST_CASE("a commit that fails half-way leaves everything as it was") {
  for (const char* const call : {"cuMemCreate", "cuMemMap", "cuMemSetAccess"}) {
    CAPTURE(call);
    fake::fresh();
    CudaDevice device(0);
    CudaArena arena(device, 64 * kMiB);
    REQUIRE(arena.commit({2 * kGranule, kGranule}));
    const int after = std::strcmp(call, "cuMemSetAccess") == 0 ? 1 : 3;
    fake_fail(call, after, 1, 999);
    CHECK_FALSE(arena.commit({0, 6 * kGranule}));  // around what is there: two runs
    CHECK(arena.committed() == kGranule);
    CHECK(fake_used(0) == kGranule);
    CHECK(std::string(device.last_failure()) == std::string(call) + ": CUDA_ERROR_UNKNOWN");
    CHECK(arena.commit({0, 6 * kGranule}));
    CHECK(arena.committed() == 6 * kGranule);
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("the cap holds over all arenas of a device; the device itself may be full before") {
  fake::fresh(32 * kMiB);
  CudaDevice device(0);
  CudaArena one(device, 64 * kMiB), other(device, 64 * kMiB);
  device.set_cap(20 * kMiB);
  CHECK(one.commit({0, 12 * kMiB}));
  CHECK_FALSE(other.commit({0, 10 * kMiB}));
  CHECK(other.commit({0, 8 * kMiB}));
  CHECK(device.held() == 20 * kMiB);
  device.set_cap(~Size{0});
  CHECK(device.cap() == 32 * kMiB);
  fake_set_foreign(0, 8 * kMiB);
  CHECK_FALSE(other.commit({8 * kMiB, 6 * kMiB}));
  CHECK(other.commit({8 * kMiB, 4 * kMiB}));
  CHECK(device.counts().refusals == 2);
  CHECK(std::string(device.last_failure()).empty());  // a lack of memory is not a failure
  CHECK(fake::misuses() == "");
}

TEST_CASE("what cannot be committed is refused before anything is mapped for it") {
  fake::fresh(2048 * kMiB);
  CudaDevice device(0);
  CudaArena arena(device, 4096 * kMiB);
  device.set_cap(1024 * kMiB);
  REQUIRE(arena.commit({0, 2 * kMiB}));
  const auto calls = fake_calls("cuMemCreate");
  CHECK_FALSE(arena.commit({0, 1026 * kMiB}));  // the cap
  device.set_cap(~Size{0});
  fake_set_foreign(0, 1500 * kMiB);
  CHECK_FALSE(arena.commit({0, 600 * kMiB}));  // the device
  CHECK(fake_calls("cuMemCreate") == calls);
  CHECK(device.counts().refusals == 2);
  CHECK(arena.commit({0, 548 * kMiB}));
  CHECK(fake::misuses() == "");
}

TEST_CASE("longer pieces: fewer calls, and memory goes back with the last granule of one") {
  fake::fresh(64 * kMiB);
  CudaDevice device(0);
  CudaArena arena(device, 64 * kMiB, {.piece = 8 * kMiB});
  REQUIRE(arena.commit({2 * kMiB, 20 * kMiB}));  // 6 to the border of 8, 8, 6
  CHECK(fake_calls("cuMemCreate") == 3);
  arena.decommit({8 * kMiB, 6 * kMiB});
  CHECK(arena.committed() == 20 * kMiB);
  CHECK(arena.commit({8 * kMiB, 2 * kMiB}));
  CHECK(fake_calls("cuMemCreate") == 3);
  arena.decommit({8 * kMiB, 8 * kMiB});
  CHECK(arena.committed() == 12 * kMiB);
  CHECK(arena.commit({10 * kMiB, 2 * kMiB}));
  CHECK(arena.committed() == 14 * kMiB);
  CHECK_FALSE(CudaArena(device, 64 * kMiB, {.piece = 3 * kMiB}).ok());
  CHECK(fake::misuses() == "");
}

TEST_CASE("what is taken away is mapped elsewhere: nothing is released, and a neighbour gets none of it") {
  fake::fresh(64 * kMiB);
  CudaDevice device(0);
  Watch watch;
  device.set_watch(&watch);
  CudaArena arena(device, 256 * kMiB), other(device, 256 * kMiB);
  REQUIRE(arena.commit({0, 32 * kMiB}));
  fake_set_foreign(0, 32 * kMiB);  // it takes all that is free, and would take more
  for (Offset from = 0; from < 96 * kMiB; from += 32 * kMiB) {
    arena.take_away({from, 32 * kMiB});
    CHECK(arena.committed() == 0);
    CHECK(device.spare() == 32 * kMiB);
    CHECK(device.held() == 32 * kMiB);  // spares count against the cap
    CHECK(watch.held == 32 * kMiB);
    CHECK(watch.mapped == 0);
    CHECK(device.free_now() == 0);
    REQUIRE(arena.commit({from + 32 * kMiB, 32 * kMiB}));
  }
  CHECK(device.counts().creates == 16);
  CHECK(device.counts().releases == 0);
  arena.take_away({96 * kMiB, 8 * kMiB});
  CHECK(other.commit({0, 8 * kMiB}));  // of whatever arena
  CHECK(device.counts().creates == 16);
  arena.decommit({104 * kMiB, 8 * kMiB});  // this goes back at once
  CHECK(device.free_now() == 8 * kMiB);
  arena.take_away({112 * kMiB, 8 * kMiB});
  arena.settle();
  CHECK(device.free_now() == 16 * kMiB);
  CHECK(device.spare() == 0);
  CHECK(fake::misuses() == "");
}

TEST_CASE("spares go back before anything is refused, by the cap or by the device") {
  for (const bool by_cap : {true, false}) {
    CAPTURE(by_cap);
    fake::fresh(64 * kMiB);
    CudaDevice device(0);
    CudaArena small(device, 256 * kMiB), large(device, 256 * kMiB, {.piece = 16 * kMiB});
    REQUIRE(large.commit({0, 32 * kMiB}));
    large.take_away({0, 32 * kMiB});
    if (by_cap) device.set_cap(32 * kMiB);
    else fake_set_foreign(0, 32 * kMiB);
    CHECK(small.commit({0, 6 * kMiB}));  // the spares are too long for it: one has to go
    CHECK(device.held() <= 32 * kMiB);
    CHECK(small.committed() == 6 * kMiB);
    small.take_away({0, 6 * kMiB});
    CHECK(large.commit({64 * kMiB, 16 * kMiB}));  // of short ones and what is left
    CHECK_FALSE(large.commit({128 * kMiB, 32 * kMiB}));
    CHECK(large.committed() == 16 * kMiB);
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("memory that moves survives an error of each driver call, whichever it is") {
  for (const char* const call :
       {"cuMemCreate", "cuMemMap", "cuMemSetAccess", "cuMemUnmap", "cuMemRelease", "cuMemGetInfo"}) {
    for (const int error : {2, 700, 999}) {
      for (const int times : {1, 1000}) {
        for (const int after : {0, 1, 4}) {
          CAPTURE(call);
          CAPTURE(error);
          CAPTURE(times);
          CAPTURE(after);
          fake::fresh(64 * kMiB);
          {
            CudaDevice device(0);
            CudaArena arena(device, 256 * kMiB);
            REQUIRE(arena.commit({0, 16 * kMiB}));
            fake_fail(call, after, times, error);
            arena.take_away({0, 8 * kMiB});
            CHECK(arena.committed() == 8 * kMiB);
            const Size before = arena.committed();
            const bool done = arena.commit({64 * kMiB, 12 * kMiB});
            CHECK(arena.committed() == before + (done ? 12 * kMiB : 0));
            CHECK(device.held() == arena.committed() + device.spare());
            arena.settle();
            CHECK(device.spare() == 0);
            fake_fail(call, 0, 0, 0);
            arena.decommit({0, arena.capacity()});
            CHECK(device.held() == 0);
            CHECK(arena.commit({128 * kMiB, 8 * kMiB}));
            std::memset(reinterpret_cast<void*>(arena.base() + 128 * kMiB), 1, 8 * kMiB);
          }
          // What the driver would not unmap or release is lost to it, not to us.
          const bool leaks = std::strcmp(call, "cuMemUnmap") == 0 || std::strcmp(call, "cuMemRelease") == 0;
          if (!leaks) {
            CHECK(fake_used(0) == 0);
            CHECK(fake::misuses() == "");
          }
        }
      }
    }
  }
}

TEST_CASE(
    "memory is unmapped when the device is quiet, and stays when that cannot be, or the arena is kept") {
  fake::fresh();
  CudaDevice device(0);
  Quiet quiet;
  device.set_quiet(&quiet);
  void* const stream = fake_stream_create();
  CudaArena arena(device, 64 * kMiB);
  REQUIRE(arena.commit({0, 8 * kMiB}));
  fake_launch_fill(stream, arena.base(), 8 * kMiB, 1);
  arena.decommit({0, 2 * kMiB});
  CHECK(quiet.waits == 1);
  CHECK(arena.committed() == 6 * kMiB);
  fake_launch_fill(stream, arena.base() + 2 * kMiB, 2 * kMiB, 1);
  quiet.possible = false;
  arena.decommit({2 * kMiB, 2 * kMiB});
  CHECK(arena.committed() == 6 * kMiB);
  quiet.possible = true;
  arena.keep(true);
  arena.decommit({4 * kMiB, 2 * kMiB});
  CHECK(arena.committed() == 6 * kMiB);
  CHECK(arena.commit({4 * kMiB, 2 * kMiB}));
  arena.keep(false);
  CHECK(arena.committed() == 4 * kMiB);
  CHECK(fake::misuses() == "");

  // What could not be unmapped then is found when memory is short.
  quiet.possible = false;
  arena.decommit({4 * kMiB, 4 * kMiB});
  quiet.possible = true;
  device.set_cap(4 * kMiB);
  CHECK(arena.commit({32 * kMiB, 4 * kMiB}));
  CHECK(device.held() == 4 * kMiB);
  CHECK(fake::misuses() == "");
}

TEST_CASE("memory may be used by the device alone, or by those that reach it") {
  fake::fresh(64 * kMiB, kGranule, 3);
  CudaDevice device(1);
  CudaArena arena(device, 64 * kMiB);
  REQUIRE(arena.commit({0, kGranule}));
  REQUIRE(arena.commit({4 * kGranule, 2 * kGranule}));
  CHECK(fake_accessors(arena.base()) == 1);
  CHECK_FALSE(device.admit(1));
  CHECK_FALSE(device.admit(3));
  CHECK(device.admit(2));
  CHECK_FALSE(device.admit(2));
  CHECK(fake_accessors(arena.base()) == 1);
  arena.share_mapped();
  CHECK(fake_accessors(arena.base()) == 2);
  CHECK(fake_accessors(arena.base() + 5 * kGranule) == 2);
  REQUIRE(arena.commit({kGranule, kGranule}));
  CHECK(fake_accessors(arena.base() + kGranule) == 2);
  device.admit_all();
  arena.share_mapped();
  CHECK(fake_accessors(arena.base() + kGranule) == 3);
  CHECK(fake::misuses() == "");
}

TEST_CASE("the fake driver sees misuse") {
  fake::fresh();
  CudaDevice device(0);
  const cuda::Driver& driver = device.driver();
  const CudaDevice::Scope scope(device);
  cuda::Address address = 0;
  REQUIRE(driver.memory_allocate(&address, 4096) == cuda::kSuccess);
  void* const stream = fake_stream_create();
  fake_launch_fill(stream, address, 4096, 1);
  CHECK(driver.memory_free(address) == cuda::kSuccess);
  CHECK(driver.memory_free(address) != cuda::kSuccess);
  fake_run_all();
  CHECK(fake::misuses() ==
        "cuMemFree under queued work\ncuMemFree of what cuMemAlloc did not give\n"
        "a kernel uses memory that is not there\n");
}

TEST_CASE("random commits and decommits next to a plain account") {
  for (const Size piece : {Size{0}, 8 * kKiB, 32 * kKiB}) {
    fake::fresh(kMiB, 4 * kKiB);
    CudaDevice device(0);
    CudaArena arena(device, 2 * kMiB, {.piece = piece});
    std::vector<bool> wanted(512);
    std::mt19937 random(3);
    for (int step = 0; step < 3000; ++step) {
      const Size first = random() % 512, count = 1 + random() % (random() % 4 == 0 ? 200 : 8);
      const Range range{first * 4 * kKiB, std::min<Size>(count, 512 - first) * 4 * kKiB};
      const bool commits = random() % 2 == 0;
      if (commits) {
        const Size before = arena.committed();
        const bool done = arena.commit(range);
        if (!done && piece == 0) REQUIRE(arena.committed() == before);
        if (!done) continue;
      } else if (random() % 2 == 0) {
        arena.take_away(range);
      } else {
        arena.decommit(range);
      }
      if (random() % 16 == 0) arena.settle();
      for (Size at = range.begin; at < range.end(); at += 4 * kKiB) wanted[at / (4 * kKiB)] = commits;
      Size bytes = 0;
      for (size_t i = 0; i < 512; ++i) {
        if (!wanted[i]) continue;
        bytes += 4 * kKiB;
        *reinterpret_cast<volatile char*>(arena.base() + i * 4 * kKiB) = 1;
      }
      REQUIRE(arena.committed() >= bytes);
      if (piece == 0) REQUIRE(arena.committed() == bytes);
      REQUIRE(arena.committed() + device.spare() == fake_used(0));
      REQUIRE(device.held() == fake_used(0));
    }
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("memory is made for network cards and other processes, where the device makes such") {
  constexpr int kBoth = cuda::kFileDescriptorHandle | cuda::kFabricHandle;
  struct {
    int refused_rdma, refused_handles;
    int rdma, handles;  // in the end
    const char* notice;
  } const kCases[] = {
      {0, 0, 1, kBoth, ""},
      {0, 8, 1, 1, "mapped memory of Fake GPU 0 cannot be shared with other nodes (fabric handles)"},
      {1, 0, 0, 1,
       "mapped memory of Fake GPU 0 cannot be shared with other nodes (fabric handles), be registered by "
       "network "
       "cards (GPUDirect RDMA)"},
      {1, kBoth, 0, 0,
       "mapped memory of Fake GPU 0 cannot be shared with other nodes (fabric handles), be registered by "
       "network "
       "cards (GPUDirect RDMA), be shared with other processes (CUDA IPC)"},
  };
  for (const auto& one : kCases) {
    fake::fresh();
    fake_set_features(1, kBoth, one.refused_rdma, one.refused_handles);
    CudaDevice device(0);
    CHECK(device.properties().gpu_direct_rdma_capable == one.rdma);
    CHECK(device.properties().handle_types == one.handles);
    CHECK(std::string(device.notice()) == one.notice);
    {
      CudaArena arena(device, 8 * kMiB);
      CHECK(arena.commit({0, kGranule}));
    }
    CHECK(fake_live_things() == 0);
    CHECK(fake::misuses() == "");
  }
}

TEST_CASE("a device that says it maps memory and does not is one that cannot") {
  fake::fresh();
  fake_set_features(1, 0, 1, 0);
  fake_fail("cuMemCreate", 0, 10, 801);
  const CudaDevice device(0);
  CHECK(device.ok());
  CHECK(device.granularity() == 0);
  CHECK(std::string(device.notice()).find("Fake GPU 0 says that it can map memory, and does not") == 0);
}

TEST_CASE("a full device does not say what it could make") {
  fake::fresh();
  fake_set_features(1, 1, 0, 0);
  fake_fail("cuMemCreate", 0, 1, 2);
  const CudaDevice device(0);
  CHECK(device.properties().gpu_direct_rdma_capable == 1);
  CHECK(std::string(device.notice()).empty());
}

TEST_CASE("a reset of the device takes the memory away, and ends nobody") {
  fake::fresh();
  CudaDevice device(0);
  {
    CudaArena arena(device, 16 * kMiB);
    REQUIRE(arena.commit({0, 8 * kMiB}));
    fake_device_reset();
    arena.decommit({0, 4 * kMiB});
    CHECK(std::string(device.last_failure()).find("cuMemUnmap") == 0);
  }
  CHECK(device.held() == 0);
}

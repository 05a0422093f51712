// SPDX-License-Identifier: Apache-2.0
#include "memoir/device/plan_thread.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "doctest/doctest.h"

namespace memoir {

namespace {

class CountedJob final : public PlanJob {
 public:
  explicit CountedJob(std::atomic<int>& count) : count_(count) {}
  std::thread::id by() const { return by_; }

 private:
  void plan() noexcept override {
    by_ = std::this_thread::get_id();
    ++count_;
  }

  std::atomic<int>& count_;
  std::thread::id by_;
};

}  // namespace

TEST_CASE("jobs run in order on a thread of their own, and whoever waits finds them done") {
  std::atomic<int> count = 0;
  PlanThread thread;
  thread.wait();  // there is none: nothing to wait for
  std::vector<std::shared_ptr<CountedJob>> jobs;
  for (int i = 0; i < 20; ++i) {
    jobs.push_back(std::make_shared<CountedJob>(count));
    thread.start(jobs.back());
  }
  thread.wait();
  CHECK(count == 20);
  for (const auto& job : jobs) {
    CHECK(job->is_done());
    CHECK(job->by() != std::this_thread::get_id());
    CHECK(job->by() == jobs[0]->by());
  }
}

TEST_CASE("a forked child has a thread of its own, and ends without waiting for its parent's") {
  std::atomic<int> count = 0;
  PlanThread thread;
  thread.start(std::make_shared<CountedJob>(count));
  thread.wait();
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 1;
    {
      PlanThread unused;
      thread.wait();  // its parent's jobs are none of its
      thread.start(std::make_shared<CountedJob>(count));
      thread.wait();
      code = count == 2 ? 0 : 2;
    }
    ::_exit(code);
  }
  REQUIRE(child > 0);
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 0);
  CHECK(count == 1);
}

}  // namespace memoir

// The helper thread's loop: turns while there are tasks, asleep on a condition variable while there are none.
#include "engine/helper_thread.h"

#include "base/clock.h"
#include "base/error.h"
#include "engine/runner.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

namespace crosslane::engine {

class HelperThread::Body final : private Runner {
 public:
  Body() {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // a new thread inherits the mask
    try {
      thread_ = std::thread{[this] { loop(); }};
    } catch (const std::system_error& problem) {
      pthread_sigmask(SIG_SETMASK, &before, nullptr);
      throw base::Error(base::ErrorClass::other, "cannot start the helper thread: {}", problem.what());
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    pthread_setname_np(thread_.native_handle(), "crosslane");
  }

  ~Body() override {
    {
      const std::lock_guard lock{mutex_};
      stopping_ = true;
      stop_requested_.store(true, std::memory_order_relaxed);
    }
    wake_.notify_one();
    thread_.join();
    abandon();
  }

  Completion spawn(Task<> task) {
    Completion completion = post(std::move(task));
    {
      const std::lock_guard lock{mutex_};
      posted_ = true;
    }
    wake_.notify_one();
    return completion;
  }

 private:
  void adopt(const Completion& completion) override {
    if (completion.kind_ == Completion::Kind::request)
      throw base::Error(base::ErrorClass::intern,
                        "the helper thread never calls MPI, but a task awaits a request there");
    if (completion.kind_ == Completion::Kind::all || completion.kind_ == Completion::Kind::any)
      for (const Completion& member : completion.members()) adopt(member);
  }

  // Lets others have the processor. False if it takes long until they give it back: somebody spins there, as a thread does that waits in MPI, and many
  // are bound to one processor with their threads. Who yields comes after a whole slice of that one's, who wakes up at once.
  static bool yields_briefly() {
    constexpr std::chrono::microseconds brief{500};
    const base::Time before = base::now();
    sched_yield();
    return base::now() - before < brief;
  }

  // Yields while something may move soon, then naps: a peer that computes for seconds must not cost a core. A nap ends
  // when a task is posted; a word that moves meanwhile is seen at its end. Where nothing but time is waited for it sleeps until then.
  void loop() {
    constexpr int yields = 2000;
    constexpr std::chrono::microseconds nap{50}, short_nap{10};
    constexpr std::chrono::milliseconds crowded{100};
    prctl(PR_SET_TIMERSLACK, 1000UL);  // nanoseconds; naps take 50 us longer by default
    base::Time yields_from = base::now();
    int quiet = 0;
    for (;;) {
      quiet = turn() ? 0 : quiet + 1;
      const std::optional<base::Time> due = next_due();
      const bool soon = quiet < yields;
      if (!due && soon && !idle() && !stop_requested_.load(std::memory_order_relaxed)) {
        if (quiet == 0) continue;
        if (base::now() >= yields_from) {
          if (!yields_briefly()) yields_from = base::now() + crowded;
          continue;
        }
      }
      std::unique_lock lock{mutex_};
      const auto woken = [this] { return posted_ || stopping_; };
      if (idle()) {
        wake_.wait(lock, woken);
      } else if (due) {
        wake_.wait_until(lock, *due, woken);
      } else {
        wake_.wait_for(lock, soon ? short_nap : nap, woken);
      }
      if (stopping_) return;
      if (posted_) quiet = 0;
      posted_ = false;
    }
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable wake_;
  bool posted_ = false;
  bool stopping_ = false;
  std::atomic<bool> stop_requested_{false};
  std::thread thread_;
};

HelperThread::HelperThread() : body_(std::make_unique<Body>()), process_(getpid()) {}

HelperThread::~HelperThread() {
  // In a child of fork() there is no thread to join, and its mutex may be locked for ever: leave both where they are.
  if (getpid() != process_) static_cast<void>(body_.release());
}

Completion HelperThread::spawn(Task<> task) {
  if (getpid() != process_)
    throw base::Error(base::ErrorClass::unsupported, "a child of fork() cannot use GPU buffers of its parent's MPI");
  return body_->spawn(std::move(task));
}

}  // namespace crosslane::engine

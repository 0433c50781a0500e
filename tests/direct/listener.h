// What a rank's watchdog tells, as a test sees it: who is missing comes only once it was named.
#pragma once

#include "support/program.h"

#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace crosslane::tests {

/// A file whose being there means that something was told; the same on all ranks of a node.
class Told {
 public:
  explicit Told(const Program& program);
  ~Told();
  Told(const Told&) = delete;
  Told& operator=(const Told&) = delete;

  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns once the file is there.
  void await() const;

 private:
  std::string folder_, path_;
  bool makes_;
};

/// Passes what this process prints on, and makes `path` once a line has these texts, one after another.
class Listener {
 public:
  Listener(std::string path, std::vector<std::string> texts);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

 private:
  void read_all();

  std::string path_;
  std::vector<std::string> texts_;
  int real_, from_ = -1;
  std::thread reader_;
};

}  // namespace crosslane::tests

// What a program was told on standard error while it ended, and the table of its calls in it.
#pragma once

#include "support/program.h"

#include <fcntl.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

namespace crosslane::tests {

/// Standard error goes to a file while one lives.
class Captured {
 public:
  explicit Captured(std::string file) : file_(std::move(file)), kept_(dup(STDERR_FILENO)) {
    const int to = open(file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(to, STDERR_FILENO);
    close(to);
  }
  /// Ends it; what was written meanwhile.
  std::string end() {
    dup2(kept_, STDERR_FILENO);
    close(kept_);
    std::ostringstream text;
    text << std::ifstream(file_).rdbuf();
    std::remove(file_.c_str());
    return text.str();
  }

 private:
  std::string file_;
  int kept_;
};

/// Ends the program: its exit status, and what was told meanwhile, by way of a file in that folder.
inline std::pair<int, std::string> finish_and_hear(Program& program, const std::string& folder) {
  std::optional<Captured> captured;
  const int status =
      program.finish([&] { captured.emplace(folder + "/told." + std::to_string(static_cast<long>(getpid()))); });
  return {status, captured->end()};
}

/// Calls by procedure and route, of the table that standard error holds.
using CountedCalls = std::map<std::pair<std::string, std::string>, int>;
inline CountedCalls counted(const std::string& text, const std::string& who) {
  CountedCalls rows;
  std::istringstream lines(text.substr(std::min(text.find(who), text.size())));
  std::string line, call, route;
  std::getline(lines, line);
  while (std::getline(lines, line) && line.starts_with("  ")) {
    std::istringstream words(line);
    int calls = 0;
    if (words >> call >> route >> calls) rows[{call, route}] = calls;
  }
  return rows;
}

}  // namespace crosslane::tests

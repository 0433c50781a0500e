// The words of a benchmark's command line: --name value pairs, each known by name. Header only: it is a page.
#pragma once

#include <fmt/format.h>

#include <charconv>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace crosslane::bench {

class Options {
 public:
  /// `known`: each name with its value where it is not given. Throws std::runtime_error for any other word.
  Options(int count, char** words, std::map<std::string, std::string> known) : values_(std::move(known)) {
    for (int i = 1; i < count; i += 2) {
      const auto found = values_.find(words[i]);
      if (found == values_.end()) throw std::runtime_error(fmt::format("unknown option {}", words[i]));
      if (i + 1 == count) throw std::runtime_error(fmt::format("{} needs a value", words[i]));
      found->second = words[i + 1];
    }
  }
  [[nodiscard]] const std::string& text(const std::string& name) const { return values_.at(name); }
  [[nodiscard]] long number(const std::string& name) const { return number_of(text(name)); }
  /// Words separated by commas.
  [[nodiscard]] std::vector<std::string> words(const std::string& name) const {
    std::vector<std::string> result;
    std::string_view rest = text(name);
    while (!rest.empty()) {
      const auto comma = rest.find(',');
      result.emplace_back(rest.substr(0, comma));
      rest.remove_prefix(comma == rest.npos ? rest.size() : comma + 1);
    }
    return result;
  }
  /// Numbers separated by commas; at least one.
  [[nodiscard]] std::vector<long> numbers(const std::string& name) const {
    std::vector<long> result;
    for (const auto& word : words(name)) result.push_back(number_of(word));
    if (result.empty()) throw std::runtime_error(fmt::format("{} is an empty list", name));
    return result;
  }

 private:
  static long number_of(std::string_view word) {
    long value = 0;
    const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), value);
    if (problem != std::errc{} || end != word.data() + word.size() || value < 1)
      throw std::runtime_error(fmt::format("'{}' is no number above 0", word));
    return value;
  }
  std::map<std::string, std::string> values_;
};

}  // namespace crosslane::bench

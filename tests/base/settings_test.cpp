// Settings: defaults, every parser, the errors' wording, and that no row is forgotten.
#include "base/settings.h"
#include "base/error.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace {

using namespace crosslane::base;

/// Gives a test an environment without CROSSLANE_* and puts the old one back.
class SettingsTest : public testing::Test {
 protected:
  void SetUp() override {
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string assignment = *variable;
      if (assignment.starts_with("CROSSLANE_")) saved_.push_back(assignment);
    }
    clear();
  }
  void TearDown() override {
    clear();
    for (const auto& assignment : saved_) {
      const auto equals = assignment.find('=');
      setenv(assignment.substr(0, equals).c_str(), assignment.substr(equals + 1).c_str(), 1);
    }
  }

  static void set(const char* name, const char* value) { setenv(name, value, 1); }

  /// The message of the error that reading raises, or nothing.
  static std::optional<std::string> error() {
    try {
      Settings::from_environment();
      return std::nullopt;
    } catch (const Error& problem) {
      EXPECT_EQ(problem.error_class(), ErrorClass::argument);
      return problem.what();
    }
  }

 private:
  static void clear() {
    std::vector<std::string> names;
    for (char** variable = environ; *variable != nullptr; ++variable) {
      const std::string assignment = *variable;
      if (assignment.starts_with("CROSSLANE_")) names.push_back(assignment.substr(0, assignment.find('=')));
    }
    for (const auto& name : names) unsetenv(name.c_str());
  }
  std::vector<std::string> saved_;
};

TEST_F(SettingsTest, GoodOnesAreTakenBesideBadOnes) {
  set("CROSSLANE_STATS", "1");
  set("CROSSLANE_CHUNK_BYTES", "-3");
  set("CROSSLANE_GPU", "emulated:2");
  set("CROSSLANE_COPY_BLOCKS", "65536");  // a number, but too large
  set("CROSSLANE_BCAST", "0-:ll");
  std::vector<Settings::Refused> refused;
  const Settings settings = Settings::from_environment(refused);
  EXPECT_TRUE(settings.stats);
  EXPECT_EQ(settings.gpu, "emulated:2");
  EXPECT_EQ(settings.chunk_bytes, Settings{}.chunk_bytes);
  EXPECT_EQ(settings.copy_blocks, 0U);
  EXPECT_EQ(settings.given, (std::vector<std::string>{"CROSSLANE_GPU", "CROSSLANE_STATS"}));
  std::set<std::string> names;
  for (const auto& one : refused) {
    EXPECT_TRUE(names.insert(one.name).second);
    EXPECT_TRUE(one.told.starts_with(one.name)) << one.told;
  }
  EXPECT_EQ(names, (std::set<std::string>{"CROSSLANE_BCAST", "CROSSLANE_CHUNK_BYTES", "CROSSLANE_COPY_BLOCKS"}));
  EXPECT_EQ(error(), refused.front().told);  // MPI_Init refuses all the same
}

TEST_F(SettingsTest, DefaultsAreTheHeaders) {
  const Settings settings = Settings::from_environment();
  EXPECT_FALSE(settings.disable);
  EXPECT_EQ(settings.gpu, "auto");
  EXPECT_EQ(settings.watchdog_s, 60);
  EXPECT_EQ(settings.chunk_bytes, 2U << 20);
  EXPECT_EQ(settings.pipeline_bytes, 4U << 20);
  EXPECT_TRUE(settings.given.empty());
  std::set<std::string> names;
  for (const auto& row : settings.rows()) {
    EXPECT_EQ(row.origin, "default") << row.name;
    EXPECT_FALSE(row.help.empty()) << row.name;
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
  }
  EXPECT_TRUE(names.contains("CROSSLANE_PINNED_LIMIT"));
}

// docs/settings.md has each row as rows() gives it, and no other name of a setting.
TEST_F(SettingsTest, DocumentationAgrees) {
  std::ifstream file(CROSSLANE_SOURCE_FOLDER "/docs/settings.md");
  ASSERT_TRUE(file);
  std::set<std::string> lines;
  std::set<std::string> documented;
  for (std::string line; std::getline(file, line);) {
    lines.insert(line);
    constexpr std::string_view row_of_setting = "| `CROSSLANE_";
    if (line.starts_with(row_of_setting)) documented.insert(line.substr(3, line.find('`', 3) - 3));
  }
  for (const auto& row : Settings::from_environment().rows()) {
    const std::string value = row.value.empty() ? "" : " `" + row.value + "`";
    const std::string expected = "| `" + row.name + "` |" + value + " | " + row.help + " |";
    EXPECT_TRUE(lines.contains(expected)) << "docs/settings.md lacks this line:\n" << expected;
    documented.erase(row.name);
  }
  for (const auto& name : documented)
    EXPECT_TRUE(name.starts_with("CROSSLANE_EMULATED_")) << name << " is in docs/settings.md and is no setting";
}

TEST_F(SettingsTest, EverySettingIsRead) {
  const std::vector<std::pair<const char*, const char*>> given{{"CROSSLANE_DISABLE", "1"},
                                                               {"CROSSLANE_GPU", "emulated:4:/tmp/topology.json"},
                                                               {"CROSSLANE_LOG", "route,info"},
                                                               {"CROSSLANE_WATCHDOG_S", "2.5"},
                                                               {"CROSSLANE_NODE_SIZE", "2"},
                                                               {"CROSSLANE_ORDER", "legacy"},
                                                               {"CROSSLANE_MODE", "replace"},
                                                               {"CROSSLANE_WORLD", "partial"},
                                                               {"CROSSLANE_TRACE", "out.json"},
                                                               {"CROSSLANE_STATS", "1"},
                                                               {"CROSSLANE_CHUNK_BYTES", "1m"},
                                                               {"CROSSLANE_PIPELINE_BYTES", "64k"},
                                                               {"CROSSLANE_PINNED_LIMIT", "1g"},
                                                               {"CROSSLANE_COPY_BLOCKS", "64"},
                                                               {"CROSSLANE_DIRECT_BYTES", "8k"},
                                                               {"CROSSLANE_EXPORT_BYTES", "64k"},
                                                               {"CROSSLANE_EXPORT_USES", "3"},
                                                               {"CROSSLANE_UNMAP", "at_rest"},
                                                               {"CROSSLANE_MESSAGE_WINDOW", "0"},
                                                               {"CROSSLANE_PACKED_BYTES", "1m"},
                                                               {"CROSSLANE_PIECE_BYTES", "1m"},
                                                               {"CROSSLANE_LIST_LIMIT", "8m"},
                                                               {"CROSSLANE_ALLREDUCE", "0-4k:ll"},
                                                               {"CROSSLANE_REDUCE", "ll"},
                                                               {"CROSSLANE_BROADCAST", "window"},
                                                               {"CROSSLANE_ALLGATHER", "window"},
                                                               {"CROSSLANE_REDUCE_SCATTER_BLOCK", "window"},
                                                               {"CROSSLANE_ALLTOALL", "window"},
                                                               {"CROSSLANE_GATHER", "window"},
                                                               {"CROSSLANE_SCATTER", "window"},
                                                               {"CROSSLANE_SCAN", "ll"},
                                                               {"CROSSLANE_EXSCAN", "window"},
                                                               {"CROSSLANE_PUT_BYTES", "123k"},
                                                               {"CROSSLANE_MAPPED_WINDOWS", "0"},
                                                               {"CROSSLANE_PATIENCE_MS", "2.5"},
                                                               {"CROSSLANE_LINGER_US", "12.5"},
                                                               {"CROSSLANE_CHECK", "1"},
                                                               {"CROSSLANE_MIXED", "0"},
                                                               {"CROSSLANE_DETERMINISTIC", "1"},
                                                               {"CROSSLANE_ALLGATHERV", "window"},
                                                               {"CROSSLANE_GATHERV", "pairwise"},
                                                               {"CROSSLANE_SCATTERV", "ll"},
                                                               {"CROSSLANE_ALLTOALLV", "pairwise"},
                                                               {"CROSSLANE_REDUCE_SCATTER", "window"}};
  for (const auto& [name, value] : given) set(name, value);
  const Settings settings = Settings::from_environment();
  EXPECT_TRUE(settings.disable);
  EXPECT_EQ(settings.watchdog_s, 2.5);
  EXPECT_EQ(settings.node_size, 2);
  EXPECT_EQ(settings.order, Order::legacy);
  EXPECT_EQ(settings.unmap, Unmap::at_rest);
  EXPECT_EQ(settings.mode, Mode::replace);
  EXPECT_EQ(settings.world, World::partial);
  EXPECT_EQ(settings.pipeline_bytes, 64U << 10);
  EXPECT_EQ(settings.patience_ms, 2.5);
  EXPECT_EQ(settings.linger_us, 12.5);
  EXPECT_EQ(settings.mixed, Mixed::no);
  const auto rows = settings.rows();
  EXPECT_EQ(rows.size(), given.size()) << "a setting that this test does not set";
  for (const auto& row : rows) {
    EXPECT_EQ(row.origin, "environment") << row.name;
    const std::string value = getenv(row.name.c_str());
    EXPECT_EQ(row.value, value) << row.name;
  }
}

TEST_F(SettingsTest, UnknownNameNamesTheNearest) {
  set("CROSSLANE_WACHDOG_S", "1");
  const auto message = error();
  ASSERT_TRUE(message);
  EXPECT_NE(message->find("CROSSLANE_WACHDOG_S"), std::string::npos);
  EXPECT_NE(message->find("the nearest one is CROSSLANE_WATCHDOG_S"), std::string::npos) << *message;
}

TEST_F(SettingsTest, UnknownNameThatIsNearToNoneNamesNone) {
  for (const char* name : {"CROSSLANE_VERBOSE", "CROSSLANE_DEBUG", "CROSSLANE_FOO", "CROSSLANE_"}) {
    set(name, "1");
    const auto message = error();
    ASSERT_TRUE(message) << name;
    EXPECT_EQ(message->find("nearest"), std::string::npos) << *message;
    EXPECT_NE(message->find("docs/settings.md"), std::string::npos) << *message;
    unsetenv(name);
  }
}

TEST_F(SettingsTest, MpisWordForABroadcastIsKnown) {
  set("CROSSLANE_BCAST", "0-:ll");
  const auto message = error();
  ASSERT_TRUE(message);
  EXPECT_NE(message->find("the nearest one is CROSSLANE_BROADCAST"), std::string::npos) << *message;
}

TEST_F(SettingsTest, ProceduresThatGoByOthersRoutesAreKnown) {
  for (const char* name : {"CROSSLANE_ALLTOALLW", "CROSSLANE_NEIGHBOR_ALLGATHER", "CROSSLANE_NEIGHBOR_ALLTOALLW"}) {
    set(name, "0-:mpi");
    const auto message = error();
    ASSERT_TRUE(message) << name;
    EXPECT_NE(message->find("the nearest one is CROSSLANE_ALLTOALLV"), std::string::npos) << *message;
    unsetenv(name);
  }
}

// docs/settings.md names in one paragraph what must be the same on all ranks: the preferred algorithms, and each other one.
TEST_F(SettingsTest, DocumentationOfWhatMustBeAlikeAgrees) {
  std::ifstream file(CROSSLANE_SOURCE_FOLDER "/docs/settings.md");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto begin = text.find("\nThe preferred algorithms, ");
  const auto end = text.find("must be the same on all ranks", begin);
  ASSERT_TRUE(begin != std::string::npos && end != std::string::npos);
  std::set<std::string> documented;
  for (auto at = text.find("`CROSSLANE_", begin); at < end; at = text.find("`CROSSLANE_", at + 1))
    documented.insert(text.substr(at + 1, text.find('`', at + 1) - at - 1));
  const Settings settings = Settings::from_environment();
  const std::string alike = "\n" + settings.alike();
  for (const auto& row : settings.rows()) {
    const bool must_be = alike.find("\n" + row.name + "=") != std::string::npos;
    if (row.help.starts_with("preferred algorithms")) {
      EXPECT_TRUE(must_be) << row.name;
    } else {
      EXPECT_EQ(documented.contains(row.name), must_be) << row.name;
    }
    documented.erase(row.name);
  }
  EXPECT_TRUE(documented.empty()) << *documented.begin();
}

TEST_F(SettingsTest, SwitchedOffByEitherSetting) {
  EXPECT_FALSE(Settings::from_environment().switched_off());
  set("CROSSLANE_MODE", "passthrough");
  EXPECT_TRUE(Settings::from_environment().switched_off());
  set("CROSSLANE_MODE", "replace");
  EXPECT_FALSE(Settings::from_environment().switched_off());
  set("CROSSLANE_DISABLE", "1");
  EXPECT_TRUE(Settings::from_environment().switched_off());
}

TEST_F(SettingsTest, NamesOfOtherPartsAreKnown) {
  for (const char* name : {"CROSSLANE_EMULATED_MEMORY", "CROSSLANE_EMULATED_FAULTS", "CROSSLANE_EMULATED_MPS",
                           "CROSSLANE_TEST_SEED", "CROSSLANE_PRELOAD", "CROSSLANE_SANITIZE"})
    set(name, "whatever");
  EXPECT_EQ(error(), std::nullopt);
}

TEST_F(SettingsTest, MalformedValuesNameVariableValueAndWhatIsAllowed) {
  const std::vector<std::pair<const char*, const char*>> wrong{
      {"CROSSLANE_DISABLE", "maybe"},       {"CROSSLANE_GPU", "emulated:0"},
      {"CROSSLANE_GPU", "emulated:65"},     {"CROSSLANE_GPU", "emulated:2:"},
      {"CROSSLANE_GPU", "emulated:two"},    {"CROSSLANE_GPU", ""},
      {"CROSSLANE_WATCHDOG_S", "-1"},       {"CROSSLANE_WATCHDOG_S", "nan"},
      {"CROSSLANE_WATCHDOG_S", "1s"},       {"CROSSLANE_NODE_SIZE", "-2"},
      {"CROSSLANE_NODE_SIZE", "2.0"},       {"CROSSLANE_ORDER", "default"},
      {"CROSSLANE_MODE", "AUTO"},           {"CROSSLANE_WORLD", "none"},
      {"CROSSLANE_CHUNK_BYTES", "0"},       {"CROSSLANE_CHUNK_BYTES", "k"},
      {"CROSSLANE_PIPELINE_BYTES", "1 m"},  {"CROSSLANE_PINNED_LIMIT", "-1k"},
      {"CROSSLANE_COPY_BLOCKS", "-1"},      {"CROSSLANE_DIRECT_BYTES", "1kk"},
      {"CROSSLANE_EXPORT_BYTES", "0"},      {"CROSSLANE_EXPORT_USES", "-1"},
      {"CROSSLANE_MESSAGE_WINDOW", "many"}, {"CROSSLANE_PACKED_BYTES", "0"},
      {"CROSSLANE_PIECE_BYTES", "0"},       {"CROSSLANE_COPY_BLOCKS", "65536"},
      {"CROSSLANE_LINGER_US", "-1"},        {"CROSSLANE_PATIENCE_MS", "1e23"},
      {"CROSSLANE_LINGER_US", "nan"},       {"CROSSLANE_LINGER_US", "2000000"},
      {"CROSSLANE_LIST_LIMIT", "0"},        {"CROSSLANE_PINNED_LIMIT", "99999999999g"},
      {"CROSSLANE_PINNED_LIMIT", "1t"},     {"CROSSLANE_UNMAP", "never"}};
  for (const auto& [name, value] : wrong) {
    set(name, value);
    const auto message = error();
    ASSERT_TRUE(message) << name << "=" << value;
    EXPECT_NE(message->find(std::string{name} + "=\"" + value + "\""), std::string::npos) << *message;
    EXPECT_NE(message->find("expected "), std::string::npos) << *message;
    unsetenv(name);
  }
}

TEST(ParseBytes, SuffixesArePowersOf1024) {
  EXPECT_EQ(parse_bytes("x", "0"), 0U);
  EXPECT_EQ(parse_bytes("x", "17"), 17U);
  EXPECT_EQ(parse_bytes("x", "64k"), 65536U);
  EXPECT_EQ(parse_bytes("x", "2M"), 2U << 20);
  EXPECT_EQ(parse_bytes("x", "3g"), std::size_t{3} << 30);
  EXPECT_THROW(parse_bytes("x", ""), Error);
  EXPECT_THROW(parse_bytes("x", "0x10"), Error);
}

}  // namespace

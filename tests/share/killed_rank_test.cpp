// Forms a world and kills rank 1, or all ranks, without warning. Prints the name that the segment had, for the script.
// Arguments: a method of sharing; one or all.
#include "base/settings.h"
#include "team/world.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

using namespace crosslane;

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  const std::string name = argv[1];
  const std::vector<share::Method> methods{name == "posix"  ? share::Method::posix
                                           : name == "file" ? share::Method::file
                                                            : share::Method::anonymous};
  alarm(30);  // a survivor that nobody ends must not outlive the test
  const mpi::Library library;
  library.below().Init(nullptr, nullptr);
  engine::Engine engine{library.below(), 30};
  team::World world{library.below(), library.handles(), engine, base::Settings::from_environment(), false, methods};
  const share::Token& token = world.directory().segment().token();
  if (world.rank() == 0) {
    std::printf("segment %s %s\n", std::string{share::name_of(token.method)}.c_str(), token.name.data());
    std::fflush(stdout);
  }
  std::vector<std::byte> all(static_cast<std::size_t>(world.size()));
  const std::byte mine{};
  engine.wait(engine.spawn(world.messenger().all_gather(team::bytes_of(mine), all)), {.call = "barrier"});
  if (world.rank() == 1 || std::string{argv[2]} == "all") kill(getpid(), SIGKILL);
  for (;;) pause();
}

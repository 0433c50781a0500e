// The cache of layouts: dropped with the type, never mistaken when a handle is used again, safe from many threads.
#include "../mpi/check.h"

#include "base/error.h"
#include "layout/cache.h"
#include "mpi/library.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

using namespace crosslane;

namespace {

const mpi::Functions* functions = nullptr;

MPI_Datatype committed_vector(int count, int length, int stride, MPI_Datatype inner) {
  MPI_Datatype type{};
  CHECK(functions->Type_vector(count, length, stride, inner, &type) == mpi::success);
  CHECK(functions->Type_commit(&type) == mpi::success);
  return type;
}

base::ErrorClass class_of_failure(layout::Cache& cache, MPI_Datatype type, std::string& text) {
  try {
    static_cast<void>(cache.of(type));
  } catch (const base::Error& error) {
    text = error.what();
    return error.error_class();
  }
  return base::ErrorClass::other;
}

void entries_go_with_their_types(layout::Cache& cache, const mpi::Handles& handles) {
  MPI_Datatype type = committed_vector(3, 1, 2, handles.int_);
  std::weak_ptr<const layout::Layout> seen = cache.of(type);
  CHECK(!seen.expired() && cache.of(type) == seen.lock());
  const auto kept = cache.of(type);
  functions->Type_free(&type);
  CHECK(kept.use_count() == 1);  // the cache has let go, we have not
  CHECK(kept->size() == 12);

  // A type of which another is made lives as long as that one.
  MPI_Datatype inner = committed_vector(2, 1, 2, handles.double_);
  static_cast<void>(cache.of(inner));
  MPI_Datatype outer = committed_vector(2, 1, 3, inner);
  functions->Type_free(&inner);
  CHECK(cache.of(outer)->size() == 32);
  functions->Type_free(&outer);

  // A duplicate is a type of its own.
  MPI_Datatype original = committed_vector(2, 1, 2, handles.int_), duplicate{};
  static_cast<void>(cache.of(original));
  functions->Type_dup(original, &duplicate);
  CHECK(cache.of(duplicate)->size() == 8);
  functions->Type_free(&original);
  CHECK(cache.of(duplicate)->size() == 8);
  functions->Type_free(&duplicate);
}

void handles_used_again_are_other_types(layout::Cache& cache, const mpi::Handles& handles) {
  std::set<MPI_Datatype> seen;
  int again = 0;
  for (int i = 1; i <= 3000; ++i) {
    MPI_Datatype type = committed_vector(1 + i % 7, 1 + i % 5, 6 + i % 3, handles.int_);
    again += seen.insert(type).second ? 0 : 1;
    CHECK(cache.of(type)->size() == static_cast<std::size_t>(4 * (1 + i % 7) * (1 + i % 5)));
    if (i % 3 == 0) {
      MPI_Count size = 0;
      functions->Type_size_x(cache.packed_twin(type), &size);
      CHECK(size == 4 * (1 + i % 7) * (1 + i % 5));
    }
    functions->Type_free(&type);
  }
  std::printf("%d handles came again\n", again);
  CHECK(again > 0);
}

// Of types and of duplicates of them, of which the one or the other goes first, so that handles of both come again as the other's.
void handles_of_duplicates_used_again_are_other_types(layout::Cache& cache, const mpi::Handles& handles) {
  std::set<MPI_Datatype> seen;
  int again = 0;
  for (int i = 1; i <= 1000; ++i) {
    const auto bytes = static_cast<std::size_t>(4 * (1 + i % 7));
    MPI_Datatype original = committed_vector(1 + i % 7, 1, 2, handles.int_), duplicate{};
    if (i % 2 == 0) CHECK(cache.of(original)->size() == bytes);
    functions->Type_dup(original, &duplicate);
    for (const MPI_Datatype type : {original, duplicate}) again += seen.insert(type).second ? 0 : 1;
    CHECK(cache.of(duplicate)->size() == bytes && cache.of(original)->size() == bytes);
    MPI_Datatype& first = i % 3 == 0 ? original : duplicate;
    MPI_Datatype& last = i % 3 == 0 ? duplicate : original;
    functions->Type_free(&first);
    // Takes the first one's place, perhaps.
    MPI_Datatype other = committed_vector(9, 1 + i % 5, 6, handles.int_);
    CHECK(cache.of(other)->size() == static_cast<std::size_t>(36 * (1 + i % 5)) && cache.of(last)->size() == bytes);
    functions->Type_free(&other);
    functions->Type_free(&last);
  }
  CHECK(again > 0);
}

// A receive holds the type that was freed: as long as MPI has its handle for that, no other type gets what the cache knows by it.
void what_is_freed_while_in_use_is_not_mistaken(layout::Cache& cache, const mpi::Handles& handles) {
  for (int i = 1; i <= 100; ++i) {
    MPI_Datatype type = committed_vector(5, 1, 2, handles.int_);
    CHECK(cache.of(type)->size() == 20);
    int sent[5] = {1, 2, 3, 4, 5}, received[10] = {};
    MPI_Request request{};
    functions->Irecv(received, 1, type, 0, 6, handles.comm_self, &request);
    functions->Type_free(&type);
    for (int k = 0; k < 2; ++k) {  // while it is under way, and when it is over
      std::vector<MPI_Datatype> others;
      for (int other = 0; other < 4; ++other) {
        others.push_back(committed_vector(1 + other, 2, 3, handles.int_));
        CHECK(cache.of(others.back())->size() == static_cast<std::size_t>(8 * (1 + other)));
      }
      if (k == 0) {
        functions->Send(sent, 5, handles.int_, 0, 6, handles.comm_self);
        functions->Wait(&request, mpi::status_ignore());
        CHECK(received[8] == 5);
      }
      for (MPI_Datatype& other : others) functions->Type_free(&other);
    }
  }
}

void what_may_not_be_used_is_refused(layout::Cache& cache, const mpi::Handles& handles) {
  std::string text;
  CHECK(class_of_failure(cache, handles.datatype_null, text) == base::ErrorClass::type);
  CHECK(text.find("MPI_DATATYPE_NULL") != std::string::npos);

  MPI_Datatype type{};
  functions->Type_vector(3, 1, 2, handles.int_, &type);
  CHECK(class_of_failure(cache, type, text) == base::ErrorClass::type);
  CHECK(text.find("MPI_Type_commit") != std::string::npos);
  CHECK_THROWS(base::Error, cache.packed_twin(type));
  functions->Type_commit(&type);
  CHECK(cache.of(type)->size() == 12);
  functions->Type_free(&type);
}

void twins_are_contiguous_and_kept(layout::Cache& cache, const mpi::Handles& handles) {
  MPI_Datatype type = committed_vector(3, 1, 4, handles.double_int);
  const MPI_Datatype twin = cache.packed_twin(type);
  CHECK(cache.packed_twin(type) == twin);
  MPI_Aint lb = -1, extent = -1;
  functions->Type_get_extent(twin, &lb, &extent);
  CHECK(lb == 0 && extent == 36);
  const auto layout = cache.of(twin);
  CHECK(layout->dense() && layout->size() == 36);

  // A transfer with the twin outlives the type.
  char sent[36] = "moved as it was packed", received[36] = "";
  MPI_Request request{};
  functions->Irecv(received, 1, twin, 0, 5, handles.comm_self, &request);
  functions->Type_free(&type);
  MPI_Datatype other = committed_vector(2, 1, 2, handles.int_);
  static_cast<void>(cache.of(other));  // frees the twin
  functions->Send(sent, 36, handles.byte, 0, 5, handles.comm_self);
  functions->Wait(&request, mpi::status_ignore());
  CHECK(std::string(received) == "moved as it was packed");
  functions->Type_free(&other);

  // More bytes than int counts.
  MPI_Datatype gibibyte{}, large{};
  functions->Type_contiguous(1 << 30, handles.byte, &gibibyte);
  functions->Type_create_hvector(5, 1, MPI_Aint{1} << 31, gibibyte, &large);
  functions->Type_commit(&large);
  MPI_Count size = 0;
  functions->Type_size_x(cache.packed_twin(large), &size);
  CHECK(size == MPI_Count{5} << 30);
  functions->Type_free(&gibibyte);
  functions->Type_free(&large);

  CHECK(cache.packed_twin(handles.int_) == cache.packed_twin(handles.int_));
}

// Not anew in each call; and not for a type that comes after, by the same handle.
void outlines_are_found_once(layout::Cache& cache) {
  int places[] = {0, 7 << 20, 64 << 20};
  for (const std::size_t stretches : {std::size_t{3}, std::size_t{2}}) {
    MPI_Datatype type{};
    CHECK(functions->Type_create_indexed_block(static_cast<int>(stretches), 8, places, functions->handles->byte,
                                               &type) == mpi::success);
    CHECK(functions->Type_commit(&type) == mpi::success);
    const auto outline = cache.outline_of(type);
    CHECK(outline->stretches().size() == stretches && outline->stretches().back().begin == places[stretches - 1]);
    CHECK(cache.outline_of(type) == outline);
    static_cast<void>(cache.packed_twin(type));
    CHECK(cache.outline_of(type) == outline);
    functions->Type_free(&type);
    CHECK(outline.use_count() == 1);
  }
}

void threads_share_it(layout::Cache& cache, const mpi::Handles& handles) {
  // Shared types are read by all; each thread also makes and frees its own.
  std::vector<MPI_Datatype> shared;
  for (int i = 0; i < 40; ++i) shared.push_back(committed_vector(2 + i, 1, 3, handles.int_));
  std::vector<std::thread> threads;
  std::vector<int> wrong(4);
  for (std::size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int round = 0; round < 300; ++round) {
        for (std::size_t i = 0; i < shared.size(); ++i)
          if (cache.of(shared[i])->size() != 4 * (2 + i)) ++wrong[t];
        MPI_Datatype own{};
        functions->Type_vector(1 + round % 9, 1, 2, handles.double_, &own);
        functions->Type_commit(&own);
        if (cache.of(own)->size() != 8U * (1U + static_cast<unsigned>(round) % 9U)) ++wrong[t];
        MPI_Count size = 0;
        functions->Type_size_x(cache.packed_twin(own), &size);
        if (size != 8 * (1 + round % 9)) ++wrong[t];
        functions->Type_free(&own);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  for (const int count : wrong) CHECK(count == 0);
  for (auto& type : shared) functions->Type_free(&type);
}

void print_cost(layout::Cache& cache, const mpi::Handles& handles) {
  MPI_Datatype type = committed_vector(3, 1, 2, handles.int_);
  static_cast<void>(cache.of(type));
  constexpr int times = 2'000'000;
  std::size_t sum = 0;
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < times; ++i) sum += cache.of(type)->size();
  const std::chrono::duration<double, std::nano> spent = std::chrono::steady_clock::now() - start;
  CHECK(sum == std::size_t{12} * times);
  std::printf("a look-up takes %.1f ns\n", spent.count() / times);
  functions->Type_free(&type);
}

}  // namespace

int main(int argc, char** argv) {
  const mpi::Library library;
  functions = &library.below();
  const auto& handles = library.handles();
  int provided = 0;
  functions->Init_thread(&argc, &argv, mpi::thread_multiple, &provided);
  MPI_Datatype outlives{};
  {
    layout::Cache cache(*functions, handles);
    CHECK(cache.of(handles.double_)->dense() && cache.of(handles.double_) == cache.of(handles.double_));
    CHECK(!cache.of(handles.double_int)->dense() && cache.of(handles.double_int)->size() == 12);
    entries_go_with_their_types(cache, handles);
    handles_used_again_are_other_types(cache, handles);
    handles_of_duplicates_used_again_are_other_types(cache, handles);
    what_is_freed_while_in_use_is_not_mistaken(cache, handles);
    what_may_not_be_used_is_refused(cache, handles);
    twins_are_contiguous_and_kept(cache, handles);
    outlines_are_found_once(cache);
    if (provided == mpi::thread_multiple)
      threads_share_it(cache, handles);
    else
      std::printf("without MPI_THREAD_MULTIPLE the threads are left out\n");
    print_cost(cache, handles);

    outlives = committed_vector(4, 1, 2, handles.int_);
    CHECK(cache.of(outlives)->size() == 16);
    cache.release();
    CHECK(cache.of(outlives)->size() == 16);  // made anew
  }
  // The cache is gone, and took its attribute off the type.
  CHECK(functions->Type_free(&outlives) == mpi::success);
  functions->Finalize();
  return check::status();
}

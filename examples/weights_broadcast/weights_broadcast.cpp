// Broadcast of a model's weights between GPUs: rank 0 has them, all the others get them, one tensor a call and all calls
// in flight at once. Every weight is verified on every rank. An ordinary MPI program over the CUDA driver API: it does
// not know Crosslane.
#include <cuda.h>
#include <mpi.h>

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

void check(CUresult result, const char* call) {
  if (result == CUDA_SUCCESS) return;
  const char* name = "an unknown error";
  cuGetErrorName(result, &name);
  std::fprintf(stderr, "weights_broadcast: %s: %s\n", call, name);
  MPI_Abort(MPI_COMM_WORLD, 2);
}

/// Ranks share the GPUs of their node in turn.
void choose_gpu(int rank) {
  int gpus = 0;
  CUdevice gpu = 0;
  CUcontext context = nullptr;
  check(cuInit(0), "cuInit");
  check(cuDeviceGetCount(&gpus), "cuDeviceGetCount");
  check(cuDeviceGet(&gpu, rank % gpus), "cuDeviceGet");
  check(cuDevicePrimaryCtxRetain(&context, gpu), "cuDevicePrimaryCtxRetain");
  check(cuCtxSetCurrent(context), "cuCtxSetCurrent");
}

/// A tensor of floats in GPU memory.
class Tensor {
 public:
  Tensor(std::string name, std::size_t rows, std::size_t columns) : name_(std::move(name)), size_(rows * columns) {
    check(cuMemAlloc(&address_, bytes()), "cuMemAlloc");
    check(cuMemsetD8(address_, 0xff, bytes()), "cuMemsetD8");  // no weight: these are NaNs
  }
  Tensor(Tensor&& other) noexcept
      : name_(std::move(other.name_)), size_(other.size_), address_(std::exchange(other.address_, 0)) {}
  Tensor& operator=(Tensor&&) = delete;
  ~Tensor() {
    if (address_ != 0) cuMemFree(address_);
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::size_t size() const { return size_; }
  [[nodiscard]] std::size_t bytes() const { return size_ * sizeof(float); }
  /// The device pointer, as MPI takes it.
  [[nodiscard]] void* data() const { return reinterpret_cast<void*>(address_); }

  void write(const std::vector<float>& values) {
    check(cuMemcpyHtoD(address_, values.data(), bytes()), "cuMemcpyHtoD");
  }
  [[nodiscard]] std::vector<float> read() const {
    std::vector<float> values(size_);
    check(cuMemcpyDtoH(values.data(), address_, bytes()), "cuMemcpyDtoH");
    return values;
  }

 private:
  std::string name_;
  std::size_t size_;
  CUdeviceptr address_ = 0;
};

/// A small transformer: 13 million weights, in tensors of 512 to 4 million.
std::vector<Tensor> model() {
  constexpr std::size_t words = 8000;
  constexpr std::size_t width = 512;
  std::vector<Tensor> tensors;
  tensors.emplace_back("embedding", words, width);
  for (int i = 0; i < 3; ++i) {
    const std::string block = "block" + std::to_string(i);
    tensors.emplace_back(block + ".norm", 1, width);
    tensors.emplace_back(block + ".attention", 4 * width, width);
    tensors.emplace_back(block + ".feed_forward.up", 4 * width, width);
    tensors.emplace_back(block + ".feed_forward.down", width, 4 * width);
  }
  return tensors;
}

/// What "training" gave tensor number `index`: values that tell tensor and place.
std::vector<float> trained(std::size_t index, std::size_t size) {
  std::vector<float> weights(size);
  for (std::size_t i = 0; i < size; ++i)
    weights[i] = static_cast<float>((i * 2654435761U + index * 40503U) % 65521U) / 65521.0F - 0.5F;
  return weights;
}

}  // namespace

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  choose_gpu(rank);

  int wrong = 0;
  std::size_t bytes = 0;
  std::size_t count = 0;
  {
    std::vector<Tensor> tensors = model();
    if (rank == 0)
      for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].write(trained(i, tensors[i].size()));
    check(cuCtxSynchronize(), "cuCtxSynchronize");  // MPI may use the tensors only when the GPU has written them

    std::vector<MPI_Request> requests;
    for (const Tensor& tensor : tensors)
      MPI_Ibcast(tensor.data(), static_cast<int>(tensor.size()), MPI_FLOAT, 0, MPI_COMM_WORLD,
                 &requests.emplace_back());
    MPI_Waitall(static_cast<int>(requests.size()), requests.data(), MPI_STATUSES_IGNORE);

    for (std::size_t i = 0; i < tensors.size(); ++i) {
      bytes += tensors[i].bytes();
      if (tensors[i].read() == trained(i, tensors[i].size())) continue;
      std::fprintf(stderr, "weights_broadcast: rank %d: %s is wrong\n", rank, tensors[i].name().c_str());
      ++wrong;
    }
    count = tensors.size();
  }
  MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  if (rank == 0 && wrong == 0)
    std::printf("weights_broadcast: verified %zu tensors, %zu MB, on %d ranks\n", count, bytes / 1'000'000, size);
  else if (rank == 0)
    std::printf("weights_broadcast: WRONG: %d tensors\n", wrong);
  MPI_Finalize();
  return wrong == 0 ? 0 : 1;
}

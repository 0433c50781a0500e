! All-reduce of GPU memory from Fortran: use mpi_f08, and the CUDA driver API by bind(C). Device memory is a Fortran pointer
! that the program passes on and never reads. An ordinary MPI program: it does not know Crosslane.
module cuda_driver
  use, intrinsic :: iso_c_binding
  use mpi_f08, only: MPI_Abort, MPI_COMM_WORLD
  implicit none
  interface
    integer(c_int) function cuInit(flags) bind(c, name='cuInit')
      import :: c_int
      integer(c_int), value :: flags
    end function
    integer(c_int) function cuDeviceGetCount(count) bind(c, name='cuDeviceGetCount')
      import :: c_int
      integer(c_int), intent(out) :: count
    end function
    integer(c_int) function cuDevicePrimaryCtxRetain(context, device) bind(c, name='cuDevicePrimaryCtxRetain')
      import :: c_int, c_ptr
      type(c_ptr), intent(out) :: context
      integer(c_int), value :: device
    end function
    integer(c_int) function cuCtxSetCurrent(context) bind(c, name='cuCtxSetCurrent')
      import :: c_int, c_ptr
      type(c_ptr), value :: context
    end function
    integer(c_int) function cuCtxSynchronize() bind(c, name='cuCtxSynchronize')
      import :: c_int
    end function
    integer(c_int) function cuMemAlloc(memory, bytes) bind(c, name='cuMemAlloc_v2')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), intent(out) :: memory
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function cuMemFree(memory) bind(c, name='cuMemFree_v2')
      import :: c_int, c_ptr
      type(c_ptr), value :: memory
    end function
    integer(c_int) function cuMemcpyHtoD(device, host, bytes) bind(c, name='cuMemcpyHtoD_v2')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: device, host
      integer(c_size_t), value :: bytes
    end function
    integer(c_int) function cuMemcpyDtoH(host, device, bytes) bind(c, name='cuMemcpyDtoH_v2')
      import :: c_int, c_ptr, c_size_t
      type(c_ptr), value :: host, device
      integer(c_size_t), value :: bytes
    end function
  end interface
contains
  subroutine check(result, call)
    integer(c_int), intent(in) :: result
    character(*), intent(in) :: call
    if (result == 0) return
    print '(3a,i0)', 'fortran_allreduce: ', call, ' failed with ', result
    call MPI_Abort(MPI_COMM_WORLD, 2)
  end subroutine

  ! Ranks share the GPUs of their node in turn.
  subroutine choose_gpu(rank)
    integer, intent(in) :: rank
    integer(c_int) :: gpus
    type(c_ptr) :: context
    call check(cuInit(0), 'cuInit')
    call check(cuDeviceGetCount(gpus), 'cuDeviceGetCount')
    call check(cuDevicePrimaryCtxRetain(context, modulo(rank, gpus)), 'cuDevicePrimaryCtxRetain')
    call check(cuCtxSetCurrent(context), 'cuCtxSetCurrent')
  end subroutine
end module

program fortran_allreduce
  use, intrinsic :: iso_c_binding
  use cuda_driver
  use mpi_f08
  implicit none
  integer, parameter :: length = 250000
  integer(c_size_t), parameter :: bytes = 8_c_size_t * length
  real(c_double), allocatable, target :: values(:)
  real(c_double), pointer, contiguous :: device(:)  ! contiguous: no compiler may want to copy it
  type(c_ptr) :: memory
  integer :: rank, ranks, i, wrong

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call choose_gpu(rank)

  allocate (values(length))
  do i = 1, length
    values(i) = i + 0.5d0 * rank
  end do
  call check(cuMemAlloc(memory, bytes), 'cuMemAlloc')
  call check(cuMemcpyHtoD(memory, c_loc(values), bytes), 'cuMemcpyHtoD')
  call check(cuCtxSynchronize(), 'cuCtxSynchronize')  ! MPI may read only what the GPU has finished writing
  call c_f_pointer(memory, device, [length])

  call MPI_Allreduce(MPI_IN_PLACE, device, length, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)

  call check(cuMemcpyDtoH(c_loc(values), memory, bytes), 'cuMemcpyDtoH')
  wrong = 0
  do i = 1, length
    if (values(i) /= real(ranks, c_double) * i + 0.25d0 * ranks * (ranks - 1)) wrong = wrong + 1
  end do
  call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  if (rank == 0) then
    if (wrong == 0) then
      print '(a,i0,a,i0,a)', 'fortran_allreduce: verified ', length, ' sums on ', ranks, ' ranks'
    else
      print '(a,i0,a)', 'fortran_allreduce: WRONG: ', wrong, ' sums'
    end if
  end if
  call check(cuMemFree(memory), 'cuMemFree')
  call MPI_Finalize()
  if (wrong /= 0) error stop 1
end program

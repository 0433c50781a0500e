! MPI from Fortran with GPU memory: one source for include 'mpif.h' (CROSSLANE_TEST_MPIF), use mpi (CROSSLANE_TEST_MPI)
! and use mpi_f08 (CROSSLANE_TEST_MPI_F08). GPU memory is a Fortran pointer that the program itself never reads.
! It must not know Crosslane.
#if defined(CROSSLANE_TEST_MPI_F08)
#define REQUEST_TYPE type(MPI_Request)
#define STATUS_TYPE type(MPI_Status)
#define COMM_TYPE type(MPI_Comm)
#else
#define REQUEST_TYPE integer
#define STATUS_TYPE integer, dimension(MPI_STATUS_SIZE)
#define COMM_TYPE integer
#endif

module device
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    subroutine device_select(rank) bind(c)
      import :: c_int
      integer(c_int), value :: rank
    end subroutine
    function device_allocate(bytes) result(memory) bind(c)
      import :: c_ptr, c_size_t
      integer(c_size_t), value :: bytes
      type(c_ptr) :: memory
    end function
    subroutine device_free(memory) bind(c)
      import :: c_ptr
      type(c_ptr), value :: memory
    end subroutine
    subroutine device_write(device, host, bytes) bind(c)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: device, host
      integer(c_size_t), value :: bytes
    end subroutine
    subroutine device_read(host, device, bytes) bind(c)
      import :: c_ptr, c_size_t
      type(c_ptr), value :: host, device
      integer(c_size_t), value :: bytes
    end subroutine
  end interface
contains
  ! `length` doubles of GPU memory.
  subroutine allocate_doubles(length, memory, values)
    integer, intent(in) :: length
    type(c_ptr), intent(out) :: memory
    real(c_double), pointer, contiguous, intent(out) :: values(:)
    memory = device_allocate(int(length, c_size_t) * 8)
    call c_f_pointer(memory, values, [length])
  end subroutine
  subroutine put(memory, host)
    type(c_ptr), intent(in) :: memory
    real(c_double), target, contiguous, intent(in) :: host(:)
    call device_write(memory, c_loc(host), size(host, kind=c_size_t) * 8)
  end subroutine
  subroutine get(host, memory)
    real(c_double), target, contiguous, intent(inout) :: host(:)
    type(c_ptr), intent(in) :: memory
    call device_read(c_loc(host), memory, size(host, kind=c_size_t) * 8)
  end subroutine
end module

! What MPI calls while it duplicates a communicator and frees the copy: it adds up GPU memory over all ranks.
module callbacks
  use, intrinsic :: iso_c_binding
  use device
#if defined(CROSSLANE_TEST_MPI_F08)
  use mpi_f08
#elif defined(CROSSLANE_TEST_MPI)
  use mpi
#endif
  implicit none
#if defined(CROSSLANE_TEST_MPIF)
  include 'mpif.h'
#endif
  integer :: times = 0
  logical :: added_up = .true.
contains
  subroutine add_up()
    integer, parameter :: length = 1000
    real(c_double), pointer, contiguous :: values(:)
    real(c_double) :: ones(length), got(length)
    type(c_ptr) :: memory
    integer :: ranks, ierror
    times = times + 1
    call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
    call allocate_doubles(length, memory, values)
    ones = 1
    call put(memory, ones)
    call MPI_Allreduce(MPI_IN_PLACE, values, length, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call get(got, memory)
    added_up = added_up .and. all(got == ranks)
    call device_free(memory)
  end subroutine
  subroutine copy_attribute(comm, keyval, extra, value, copied, flag, ierror)
    COMM_TYPE :: comm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra, value, copied
    logical :: flag
    call add_up()
    copied = value + 1
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete_attribute(comm, keyval, value, extra, ierror)
    COMM_TYPE :: comm
    integer :: keyval, ierror
    integer(MPI_ADDRESS_KIND) :: value, extra
    call add_up()
    ierror = MPI_SUCCESS
  end subroutine
end module

program fortran_test
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  use device
  use callbacks
  implicit none
  integer, parameter :: lengths(3) = [1, 1000, 300000]
  integer :: rank, ranks, left, right, failures, all_failures, ierror, i

  call MPI_Init(ierror)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierror)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierror)
  left = modulo(rank - 1, ranks)
  right = modulo(rank + 1, ranks)
  failures = 0
  call device_select(rank)
  do i = 1, size(lengths)
    call calls(lengths(i))
  end do
  call attributes()
#if defined(CROSSLANE_TEST_MPI_F08)
  if (MPI_SUBARRAYS_SUPPORTED) then
    call sections(1000)
  else if (rank == 0) then
    write (error_unit, '(a)') 'sections are left out: this MPI says that it does not support subarrays'
  end if
#endif
  call MPI_Allreduce(failures, all_failures, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierror)
  call MPI_Finalize(ierror)
  if (all_failures /= 0) error stop 1

contains

  subroutine check(right_result, what, length)
    logical, intent(in) :: right_result
    character(*), intent(in) :: what
    integer, intent(in) :: length
    if (right_result) return
    failures = failures + 1
    write (error_unit, '(a,i0,3a,i0,a)') 'FAILED lifecycle_fortran, rank ', rank, ': ', what, ' of ', length, ' doubles'
  end subroutine

  ! What rank `of` holds.
  subroutine fill(values, of)
    real(c_double), intent(out) :: values(:)
    integer, intent(in) :: of
    integer :: k
    do k = 1, size(values)
      values(k) = k + 1000000.0d0 * of
    end do
  end subroutine

  subroutine calls(length)
    integer, intent(in) :: length
    real(c_double), pointer, contiguous :: send(:), receive(:)
    real(c_double), allocatable :: mine(:), got(:), expected(:)
    type(c_ptr) :: send_memory, receive_memory
    REQUEST_TYPE :: request
    STATUS_TYPE :: status
    integer :: count

    allocate (mine(length), got(length), expected(length))
    call allocate_doubles(length, send_memory, send)
    call allocate_doubles(length, receive_memory, receive)
    call fill(mine, rank)
    call put(send_memory, mine)

    ! Ring, blocking: even ranks send first.
    if (modulo(rank, 2) == 0) then
      call MPI_Send(send, length, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, ierror)
      call MPI_Recv(receive, length, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, status, ierror)
    else
      call MPI_Recv(receive, length, MPI_DOUBLE_PRECISION, left, 1, MPI_COMM_WORLD, status, ierror)
      call MPI_Send(send, length, MPI_DOUBLE_PRECISION, right, 1, MPI_COMM_WORLD, ierror)
    end if
    call MPI_Get_count(status, MPI_DOUBLE_PRECISION, count, ierror)
    call check(count == length, 'MPI_Get_count', length)
    call get(got, receive_memory)
    call fill(expected, left)
    call check(all(got == expected), 'MPI_Recv', length)

    ! Ring, nonblocking, the other way round.
    call MPI_Irecv(receive, length, MPI_DOUBLE_PRECISION, right, 2, MPI_COMM_WORLD, request, ierror)
    call MPI_Send(send, length, MPI_DOUBLE_PRECISION, left, 2, MPI_COMM_WORLD, ierror)
    call MPI_Wait(request, status, ierror)
    call get(got, receive_memory)
    call fill(expected, right)
    call check(all(got == expected), 'MPI_Irecv', length)

    call MPI_Allreduce(send, receive, length, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call get(got, receive_memory)
    call fill(expected, 0)
    expected = ranks * expected + 1000000.0d0 * (ranks * (ranks - 1) / 2)
    call check(all(got == expected), 'MPI_Allreduce', length)

    call put(receive_memory, mine)
    call MPI_Allreduce(MPI_IN_PLACE, receive, length, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierror)
    call get(got, receive_memory)
    call check(all(got == expected), 'MPI_Allreduce in place', length)

    call put(receive_memory, mine)
    call MPI_Bcast(receive, length, MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD, ierror)
    call get(got, receive_memory)
    call fill(expected, ranks - 1)
    call check(all(got == expected), 'MPI_Bcast', length)

    call device_free(send_memory)
    call device_free(receive_memory)
  end subroutine

  subroutine attributes()
    COMM_TYPE :: first, second
    integer :: keyval
    integer(MPI_ADDRESS_KIND) :: value
    logical :: found
    call MPI_Comm_create_keyval(copy_attribute, delete_attribute, keyval, 0_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_dup(MPI_COMM_WORLD, first, ierror)
    call MPI_Comm_set_attr(first, keyval, 5_MPI_ADDRESS_KIND, ierror)
    call MPI_Comm_dup(first, second, ierror)
    call MPI_Comm_get_attr(second, keyval, value, found, ierror)
    call check(found .and. value == 6, 'an attribute''s copy', 1000)
    call MPI_Comm_free(second, ierror)
    call MPI_Comm_free(first, ierror)
    call MPI_Comm_free_keyval(keyval, ierror)
    call check(times == 3 .and. added_up, 'MPI_Allreduce by an attribute''s callbacks', 1000)
  end subroutine

#if defined(CROSSLANE_TEST_MPI_F08)
  ! Every second element: the MPI makes a datatype of the descriptor (MPI 5.0, section 19.1.12).
  subroutine sections(length)
    integer, intent(in) :: length
    real(c_double), pointer, contiguous :: send(:), receive(:)
    real(c_double), allocatable :: mine(:), got(:), expected(:), from_left(:)
    type(c_ptr) :: send_memory, receive_memory
    type(MPI_Request) :: request

    allocate (mine(length), got(length), expected(length), from_left(length))
    call allocate_doubles(length, send_memory, send)
    call allocate_doubles(length, receive_memory, receive)
    call fill(mine, rank)
    call fill(from_left, left)
    call put(send_memory, mine)
    expected = -1
    call put(receive_memory, expected)
    call MPI_Irecv(receive(2::2), length / 2, MPI_DOUBLE_PRECISION, left, 3, MPI_COMM_WORLD, request)
    call MPI_Send(send(1::2), length / 2, MPI_DOUBLE_PRECISION, right, 3, MPI_COMM_WORLD)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    expected(2::2) = from_left(1::2)
    call get(got, receive_memory)
    call check(all(got == expected), 'MPI_Irecv of a section', length)

    call put(receive_memory, mine)
    call MPI_Bcast(receive(1::2), length / 2, MPI_DOUBLE_PRECISION, 0, MPI_COMM_WORLD)
    call fill(from_left, 0)
    expected = mine
    expected(1::2) = from_left(1::2)
    call get(got, receive_memory)
    call check(all(got == expected), 'MPI_Bcast of a section', length)
    call device_free(send_memory)
    call device_free(receive_memory)
  end subroutine
#endif
end program

// The types of functions that an application hands to MPI: the same text in every ABI family, over its handle types.
// Included by the abi_<family>.h files alone.
#pragma once

using MPI_User_function = void(void*, void*, int*, MPI_Datatype*);
using MPI_User_function_c = void(void*, void*, MPI_Count*, MPI_Datatype*);

using MPI_Comm_copy_attr_function = int(MPI_Comm, int, void*, void*, void*, int*);
using MPI_Comm_delete_attr_function = int(MPI_Comm, int, void*, void*);
using MPI_Type_copy_attr_function = int(MPI_Datatype, int, void*, void*, void*, int*);
using MPI_Type_delete_attr_function = int(MPI_Datatype, int, void*, void*);
using MPI_Win_copy_attr_function = int(MPI_Win, int, void*, void*, void*, int*);
using MPI_Win_delete_attr_function = int(MPI_Win, int, void*, void*);
using MPI_Copy_function = int(MPI_Comm, int, void*, void*, void*, int*);
using MPI_Delete_function = int(MPI_Comm, int, void*, void*);

using MPI_Comm_errhandler_function = void(MPI_Comm*, int*, ...);
using MPI_File_errhandler_function = void(MPI_File*, int*, ...);
using MPI_Win_errhandler_function = void(MPI_Win*, int*, ...);
using MPI_Session_errhandler_function = void(MPI_Session*, int*, ...);

using MPI_Grequest_query_function = int(void*, MPI_Status*);
using MPI_Grequest_free_function = int(void*);
using MPI_Grequest_cancel_function = int(void*, int);

using MPI_Datarep_extent_function = int(MPI_Datatype, MPI_Aint*, void*);
using MPI_Datarep_conversion_function = int(void*, MPI_Datatype, int, void*, MPI_Offset, void*);
using MPI_Datarep_conversion_function_c = int(void*, MPI_Datatype, MPI_Count, void*, MPI_Offset, void*);

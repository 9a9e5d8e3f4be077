# genai_cuda.m4 - GENAI_CUDA: should cuda_ep be built, with which nvcc, for
# which architectures.
# Sets have_cuda (yes/no), cuda_summary; substitutes NVCC, NVCCFLAGS,
# CUDA_CPPFLAGS, CUDA_ARCHS, CUDA_GENCODE, CUDA_GENCODE_A (with the instructions
# that only 9.0 has) and CUDA_HAVE_90A (1: 9.0 is in the list).  The runtime
# library is not needed: kernels are embedded as images and loaded through the
# driver.
AC_DEFUN([GENAI_CUDA],
[AC_ARG_WITH([cuda],
  [AS_HELP_STRING([--with-cuda@<:@=DIR@:>@],
    [build the CUDA module with the toolkit in DIR @<:@auto@:>@])],
  [], [with_cuda=auto])
AC_ARG_WITH([cuda-arch],
  [AS_HELP_STRING([--with-cuda-arch=LIST],
    [compute capabilities without the point, the newest also as PTX
     @<:@those of 75 80 86 89 90 100 120 that nvcc knows@:>@])],
  [], [with_cuda_arch=])
AC_ARG_VAR([NVCC], [CUDA compiler command])
AC_ARG_VAR([NVCCFLAGS], [CUDA compiler flags])
have_cuda=no
cuda_summary=no
CUDA_CPPFLAGS=
CUDA_GENCODE=
CUDA_GENCODE_A=
CUDA_HAVE_90A=0
CUDA_ARCHS=
AS_IF([test "x$with_cuda" != xno], [
  cuda_dir=
  AS_CASE([$with_cuda], [auto|yes], [], [cuda_dir=$with_cuda])
  AS_IF([test "x$cuda_dir" != x && test "x$NVCC" = x],
    [NVCC=$cuda_dir/bin/nvcc])
  AC_PATH_PROGS([NVCC], [nvcc], [], [$PATH:/usr/local/cuda/bin])
  cuda_why=
  AS_IF([test "x$NVCC" = x || test ! -x "$NVCC"],
    [cuda_why="nvcc was not found"],
    [AS_IF([test "x$cuda_dir" = x],
      [cuda_dir=`dirname "$NVCC"`
       cuda_dir=`dirname "$cuda_dir"`])
     CUDA_CPPFLAGS="-I$cuda_dir/include"
     cuda_save_CPPFLAGS=$CPPFLAGS
     CPPFLAGS="$CPPFLAGS $CUDA_CPPFLAGS"
     AC_CHECK_HEADER([cuda.h], [], [cuda_why="cuda.h was not found"])
     CPPFLAGS=$cuda_save_CPPFLAGS])
  AS_IF([test "x$cuda_why" = x], [
    AS_IF([test "x$with_cuda_arch" = x], [
      for cuda_arch in 75 80 86 89 90 100 120; do
        AS_IF(["$NVCC" --list-gpu-code 2>/dev/null |
               grep "^sm_$cuda_arch\$" >/dev/null],
          [with_cuda_arch="$with_cuda_arch $cuda_arch"])
      done])
    CUDA_ARCHS=`echo $with_cuda_arch | tr ',' ' '`
    cuda_newest=0
    for cuda_arch in $CUDA_ARCHS; do
      CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cuda_arch,code=sm_$cuda_arch"
      cuda_own=$cuda_arch
      AS_CASE([$cuda_arch], [90|90a], [cuda_own=90a CUDA_HAVE_90A=1])
      CUDA_GENCODE_A="$CUDA_GENCODE_A -gencode arch=compute_$cuda_own,code=sm_$cuda_own"
      cuda_number=`echo "$cuda_arch" | tr -cd '0-9'`
      AS_IF([test "$cuda_number" -gt "$cuda_newest"],
        [cuda_newest=$cuda_number])
    done
    CUDA_GENCODE="$CUDA_GENCODE -gencode arch=compute_$cuda_newest,code=compute_$cuda_newest"
    CUDA_GENCODE_A="$CUDA_GENCODE_A -gencode arch=compute_$cuda_newest,code=compute_$cuda_newest"
    AC_MSG_CHECKING([whether $NVCC compiles for $CUDA_ARCHS])
    echo 'extern "C" __global__ void f(int *p) { *p = 1; }' >conftest.cu
    AS_IF([AM_RUN_LOG([$NVCC $NVCCFLAGS -fatbin $CUDA_GENCODE -o conftest.fatbin conftest.cu])],
      [AC_MSG_RESULT([yes])],
      [AC_MSG_RESULT([no])
       cuda_why="nvcc cannot compile for $CUDA_ARCHS (see config.log)"])
    rm -f conftest.cu conftest.fatbin])
  AS_IF([test "x$cuda_why" = x],
    [have_cuda=yes
     cuda_summary="$NVCC, architectures $CUDA_ARCHS"],
    [test "x$with_cuda" = xauto],
    [AC_MSG_NOTICE([cuda_ep is not built: $cuda_why])
     cuda_summary="no ($cuda_why)"],
    [AC_MSG_ERROR([--with-cuda: $cuda_why])])])
AC_SUBST([CUDA_CPPFLAGS])
AC_SUBST([CUDA_ARCHS])
AC_SUBST([CUDA_GENCODE])
AC_SUBST([CUDA_GENCODE_A])
AC_SUBST([CUDA_HAVE_90A])
])

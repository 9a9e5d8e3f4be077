# GENAI_SANITIZE - --enable-sanitizer=LIST, as in -fsanitize=LIST.  The first
# report ends the process, so a test that provokes one fails.
AC_DEFUN([GENAI_SANITIZE], [
AC_ARG_ENABLE([sanitizer],
  [AS_HELP_STRING([--enable-sanitizer=LIST],
    [build with -fsanitize=LIST, such as address,undefined])],
  [], [enable_sanitizer=no])
SAN_CFLAGS=
SAN_LDFLAGS=
# Modules and the library resolve everything at link time.  clang leaves the
# sanitizer's own symbols to the executable, so not there.
ZDEFS_LDFLAGS="-no-undefined -Wl,-z,defs"
AS_IF([test "x$enable_sanitizer" != xno], [
  SAN_LDFLAGS="-fsanitize=$enable_sanitizer"
  SAN_CFLAGS="$SAN_LDFLAGS -fno-sanitize-recover=all -fno-omit-frame-pointer"
  genai_save_CFLAGS=$CFLAGS
  CFLAGS="$CFLAGS $SAN_CFLAGS"
  AC_MSG_CHECKING([whether $CC links with $SAN_LDFLAGS])
  AC_LINK_IFELSE([AC_LANG_PROGRAM()], [AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])
     AC_MSG_ERROR([$CC cannot build with $SAN_LDFLAGS])])
  CFLAGS=$genai_save_CFLAGS
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM([[
#ifndef __clang__
#error not clang
#endif
  ]])], [ZDEFS_LDFLAGS=])
])
AC_SUBST([SAN_CFLAGS])
AC_SUBST([SAN_LDFLAGS])
AC_SUBST([ZDEFS_LDFLAGS])
])

# GENAI_WARNINGS - collect the warning flags that the compiler knows in
# WARN_CFLAGS; --enable-werror makes them errors.  Never errors by default: a
# newer compiler must not break a packager's build.
AC_DEFUN([GENAI_WARNINGS], [
AC_ARG_ENABLE([werror],
  [AS_HELP_STRING([--enable-werror], [make compiler warnings errors])],
  [], [enable_werror=no])
WARN_CFLAGS=
genai_save_CFLAGS=$CFLAGS
for genai_flag in -Wall -Wextra -Wstrict-prototypes -Wmissing-prototypes \
  -Wold-style-definition -Wpointer-arith -Wvla \
  -Wno-unused-parameter -Wno-missing-field-initializers \
  -Wno-format-truncation -Wno-unknown-pragmas -Wno-error=maybe-uninitialized
do
  AC_MSG_CHECKING([whether $CC accepts $genai_flag])
  CFLAGS="$genai_save_CFLAGS -Werror $genai_flag"
  AC_COMPILE_IFELSE([AC_LANG_PROGRAM()],
    [WARN_CFLAGS="$WARN_CFLAGS $genai_flag"
     AC_MSG_RESULT([yes])],
    [AC_MSG_RESULT([no])])
done
CFLAGS=$genai_save_CFLAGS
AS_IF([test "x$enable_werror" = xyes], [WARN_CFLAGS="$WARN_CFLAGS -Werror"])
AC_SUBST([WARN_CFLAGS])
])

#!/bin/sh
# autogen.sh - make ./configure out of a checkout.
set -e
cd "$(dirname "$0")"
exec autoreconf -fi

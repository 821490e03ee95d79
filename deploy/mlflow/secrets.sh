#!/bin/sh
# Makes the passwords of the compose file, once; prints none of them.
set -eu
umask 077
cd "$(dirname "$0")"
mkdir -p secrets
for name in postgres_password objects_password admin_password session_key; do
  if [ ! -s "secrets/$name" ]; then
    head -c 24 /dev/urandom | od -An -tx1 | tr -d ' \n' >"secrets/$name"
  fi
done
printf 'admin:%s\n' "$(cat secrets/admin_password)" >secrets/login
# The containers run as other users and read their own files; nobody else gets into the folder.
chmod 700 secrets
chmod 444 secrets/postgres_password secrets/objects_password secrets/admin_password secrets/session_key
chmod 600 secrets/login
echo "made in $PWD/secrets; point TUNEPARTS_TRACKING_LOGIN at $PWD/secrets/login"

#!/bin/sh
# Starts MLflow with accounts. Passwords come from files and go to the server by its environment:
# a command line is readable by every user of the machine.
#
# In the compose file the defaults fit. As plain commands on a machine with PostgreSQL:
#   createuser mlflow --pwprompt && createdb mlflow --owner mlflow
#   SECRETS=/etc/tuneparts POSTGRES_HOST=127.0.0.1 BIND=127.0.0.1 \
#     ARTIFACTS=s3://your-bucket/mlflow ./server.sh
set -eu
secrets="${SECRETS:-/run/secrets}"
state="${STATE:-/tmp/mlflow}"
mkdir -p "$state"

urlencode() {
  python3 -c 'import sys, urllib.parse; print(urllib.parse.quote(sys.stdin.read().strip(), safe=""))'
}
password="$(urlencode <"$secrets/postgres_password")"
database="postgresql+psycopg2://mlflow:$password@${POSTGRES_HOST:-postgres}:${POSTGRES_PORT:-5432}/mlflow"

umask 077
cat >"$state/auth.ini" <<SETTINGS
[mlflow]
default_permission = READ
database_uri = $database
admin_username = ${ADMIN:-admin}
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
SETTINGS

export MLFLOW_BACKEND_STORE_URI="$database"
export MLFLOW_AUTH_CONFIG_PATH="$state/auth.ini"
MLFLOW_AUTH_ADMIN_PASSWORD="$(cat "$secrets/admin_password")"
MLFLOW_FLASK_SERVER_SECRET_KEY="$(cat "$secrets/session_key")"
export MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY
if [ -f "$secrets/objects_password" ]; then
  AWS_SECRET_ACCESS_KEY="$(cat "$secrets/objects_password")"
  export AWS_SECRET_ACCESS_KEY
fi
# One worker. With several, uvicorn hands them a socket for which asyncio does not switch off Nagle's
# algorithm, and each request on a connection that is kept open waits 40 ms (44 instead of 2 ms seen).
# One worker answers a driver and a few readers; with many readers set WORKERS, and measure.
exec mlflow server \
  --app-name basic-auth \
  --host "${BIND:-0.0.0.0}" --port "${PORT:-5000}" \
  --allowed-hosts "${ALLOWED_HOSTS:-localhost:*,127.0.0.1:*}" \
  --artifacts-destination "${ARTIFACTS:-s3://mlflow}" \
  --workers "${WORKERS:-1}"

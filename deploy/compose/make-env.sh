#!/bin/sh
# Writes .env beside this file, with passwords of its own making; one that is there is left as it is.
set -eu
cd "$(dirname "$0")"

if [ -e .env ]; then
    echo "make-env.sh: $PWD/.env is there already, and is left as it is" >&2
    exit 1
fi

password() {
    # Hexadecimal, because it becomes part of a URL.
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

umask 077
cat >.env.new <<END
# The model to ask, and its key. "extract" folds without any model. Another server's address: OPENAI_BASE_URL.
MNEME_LLM__MODEL=${MNEME_LLM__MODEL:-}
OPENAI_API_KEY=
OPENAI_BASE_URL=
WORKERS=1

# Made by make-env.sh. Postgres takes its two (its superuser's, and of the service's role) when its volume is first filled,
# and keeps them; Redis and Flower take theirs at each start.
POSTGRES_PASSWORD=$(password)
SERVICE_PASSWORD=$(password)
REDIS_PASSWORD=$(password)
FLOWER_PASSWORD=$(password)
END
mv .env.new .env
# Containers read these as other users.
for file in database.sql ../../config.toml; do
    if [ -e "$file" ]; then chmod a+r "$file"; fi
done
echo "$PWD/.env is written: set MNEME_LLM__MODEL and OPENAI_API_KEY in it"

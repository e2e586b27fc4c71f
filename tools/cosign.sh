#!/bin/sh
# Unpacks cosign from Debian's trixie into the folder that is given, without installing it. The mirror is the one that
# the machine's own sources name for Debian. Elsewhere than on Debian the tests that need cosign are skipped.
set -e
folder=$1
keys=/usr/share/keyrings/debian-archive-keyring.gpg
mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/* 2>/dev/null |
	sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\) .*/\2/p' |
	grep '/debian/*$' | head -n 1)
if ! command -v apt-get >/dev/null || [ -z "$mirror" ] || [ ! -e "$keys" ]; then
	echo "not on Debian: the tests that need cosign are skipped" >&2
	exit 0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
chmod 755 "$work"
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/state"
touch "$work/status"
echo "deb [signed-by=$keys] $mirror trixie main" >"$work/sources.list"
set -- -qq -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=- -o Dir::State="$work/state" \
	-o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/status" -o Dir::Cache="$work/cache" \
	-o APT::Sandbox::User=root
apt-get "$@" update
(cd "$work" && apt-get "$@" download cosign)
mkdir -p "$folder"
dpkg-deb -x "$work"/cosign_*.deb "$folder"

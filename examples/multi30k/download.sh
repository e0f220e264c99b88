#!/usr/bin/env bash
# Multi30k English-German: download the six raw texts.
#
#   download.sh DATA [options]
#
# DATA appears when all six texts are complete; until then they are in DATA.part, from
# which an interrupted download resumes.
#
#   --checksums FILE      sha256sum-style list of the archives to trust before any other
#   --keep                end without an error if DATA is there already, even if another process has
#                         just made it
#   options of ../common/steps.sh --dry-run --help

set -euo pipefail
. "$(dirname "$0")/../common/steps.sh"
parse "$@"
. "$COMMON/digests.sh"

ADDRESS=https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw/
# The md5 digests are those that torchtext published for these addresses.
ARCHIVES=(
    "train.en.gz md5:0065d13af80720a55ca8153d126e6627"
    "train.de.gz md5:81ff90b99829c0cd4b1b587d394afd39"
    "val.en.gz md5:2b69aa9253948ac9f67e94917272dd40"
    "val.de.gz md5:6e0e229eb049e3fc99a1ef02fb2d5f91"
    "test_2016_flickr.en.gz md5:ff2c0fcb4893a13bd73414306bc250ae"
    "test_2016_flickr.de.gz md5:efd67d314d98489b716b145475101932"
)

DATA=$(absolute "$DATA") # a slash at its end would put the .part below in it
((!KEEP)) || [[ ! -e $DATA ]] || exit 0
[[ ! -e $DATA ]] || die "$DATA: already exists; give a new folder"
PART=$DATA.part RECORD=$DATA.part/archives.sha256
alone "$PART" --waits
for entry in "${ARCHIVES[@]}"; do
    read -r name digest <<<"$entry"
    fetch "$ADDRESS$name" "$PART/$name" "$digest"
    run gunzip --force --keep "$PART/$name"
done
run mv "$PART" "$DATA"

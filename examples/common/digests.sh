# shellcheck shell=bash
# Downloads whose digests are known, for recipes that have sourced steps.sh. Defines
#
#     verify FILE [DIGEST]       check a file and record its sha256 in RECORD; sets SHA256
#     fetch URL FILE [DIGEST]    download with resume, then verify
#
# DIGEST is sha256:HEX, md5:HEX, git:HEX (the name of a file's content in git), or "-" if unknown.
# CHECKSUMS, a list given by the user, takes precedence over it; RECORD, the list of what was accepted
# before, comes last. A file that none of the three knows is refused: to accept it, list it.

[[ -z ${CHECKSUMS:-} || -f $CHECKSUMS ]] || die "--checksums $CHECKSUMS: no such file"
declare -A DIGESTS=([32]=md5 [40]=sha1 [56]=sha224 [64]=sha256 [96]=sha384 [128]=sha512)

# Print "ALGORITHM:DIGEST" of file name $2 in the list $1, if it is there. Lists are those of
# sha256sum and its relatives, with or without folders, "*" and carriage returns, and BSD's.
listed_digest() {
    local digest name found="" number=0
    [[ -n $1 && -f $1 ]] || return 0
    while read -r digest name || [[ -n $digest ]]; do
        number=$((number + 1))
        [[ -n $digest && $digest != "#"* ]] || continue
        [[ $digest =~ ^[0-9a-f]+$ && -n $name ]] ||
            die "$1, line $number: expected a digest and the name of a file"
        [[ -n ${DIGESTS[${#digest}]:-} ]] || die "$1, line $number: a digest of unknown kind"
        [[ $name == "$2" ]] || continue
        digest=${DIGESTS[${#digest}]}:$digest
        [[ -z $found || $found == "$digest" ]] ||
            die "$1, line $number: a second digest of $name, and another one"
        found=$digest
    done < <(sed -E 's/^\xef\xbb\xbf//; s/^[ \t]+|[ \t\r]+$//g; s/^\\//
        s/^[A-Za-z][A-Za-z0-9-]* ?\((.*)\) ?= ?([0-9A-Fa-f]+)$/\2 \1/
        s/^([0-9A-Fa-f]+)[ \t]+\*?/\L\1\E /; s/^([0-9a-f]+) .*[/\\]/\1 /' "$1")
    printf '%s' "$found"
}

verify() {
    local file=$1 digest=${2:--} name=${1##*/} given recorded seen source="the recipe"
    name=${name%.new}
    given=$(listed_digest "${CHECKSUMS:-}" "$name") ||
        die "$CHECKSUMS: not a list of digests (see above)"
    recorded=$(listed_digest "${RECORD:-}" "$name") || die "$RECORD: damaged (see above); remove it"
    if [[ -n $given ]]; then
        digest=$given source=$CHECKSUMS
    elif [[ $digest == - && -n $recorded ]]; then
        digest=$recorded source=$RECORD
    fi
    SHA256=$(sha256sum <"$file")
    SHA256=${SHA256%% *}
    [[ $digest != - ]] ||
        die "$file: no digest is known; it has sha256:$SHA256, and if you trust it, write" \
            "\"$SHA256  $name\" into a file and give that with --checksums"
    if [[ $digest == git:* ]]; then
        seen=$({ printf 'blob %d\0' "$(wc -c <"$file")"; cat "$file"; } | sha1sum)
    else
        seen=$("${digest%%:*}sum" <"$file")
    fi
    seen=${digest%%:*}:${seen%% *}
    [[ $seen == "${digest,,}" ]] ||
        die "$file has $seen but $source says $digest; remove it, or give --checksums FILE"
    log "$name: $digest as $source says"
    if [[ -n ${RECORD:-} && -z $recorded ]]; then
        mkdir -p "$(dirname "$RECORD")"
        printf '%s  %s\n' "$SHA256" "$name" >>"$RECORD"
    fi
}

# FILE.part is an interrupted download, which is resumed; FILE.new is a complete one that is
# not verified yet.
fetch() {
    local url=$1 file=$2 digest=${3:--}
    if [[ -f $file ]]; then
        ((DRY_RUN)) || verify "$file" "$digest"
        return
    fi
    if [[ ! -f $file.new ]]; then
        run mkdir -p "$(dirname "$file")"
        run curl --fail --location --retry 5 --continue-at - --output "$file.part" "$url"
        run mv "$file.part" "$file.new"
    fi
    ((DRY_RUN)) || verify "$file.new" "$digest"
    run mv "$file.new" "$file"
}

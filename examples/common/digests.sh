# shellcheck shell=bash
# Downloads whose digests are known, for recipes that have sourced steps.sh. Defines
#
#     verify FILE [DIGEST]       check a file and record its sha256 in RECORD; sets SHA256
#     fetch URL FILE [DIGEST]    download with resume, then verify
#
# DIGEST is sha256:HEX, md5:HEX or "-" if unknown. CHECKSUMS, a list given by the user, takes
# precedence over it; RECORD, the list of what was accepted before, comes last. A file that none of
# the three knows is refused: to accept it, list it.

# Print "ALGORITHM:DIGEST" of file name $2 in the list $1, if it is there. Lists are those of
# sha256sum and its relatives, with or without folders, "*" and carriage returns, and BSD's.
listed_digest() {
    [[ -n $1 && -f $1 ]] || return 0
    awk -v wanted="$2" -v list="$1" '
        BEGIN {
            kind[32] = "md5"; kind[40] = "sha1"; kind[56] = "sha224"; kind[64] = "sha256"
            kind[96] = "sha384"; kind[128] = "sha512"
        }
        function bad(why) {
            printf "%s, line %d: %s\n", list, NR, why >"/dev/stderr"
            failed = 1
            exit 1
        }
        { sub(/^\357\273\277/, ""); gsub(/^[ \t]+|[ \t\r]+$/, "") }
        /^(#|$)/ { next }
        {
            digest = name = $0
            if (/^[A-Za-z][A-Za-z0-9-]* ?\(.*\) ?= ?[0-9A-Fa-f]+$/) { # SHA256 (NAME) = DIGEST
                sub(/^.*= ?/, "", digest)
                sub(/^[^(]*\(/, "", name); sub(/\) ?= ?[0-9A-Fa-f]+$/, "", name)
            } else if (/^\\?[0-9A-Fa-f]+[ \t]+./) { # DIGEST NAME
                sub(/^\\/, "", digest); sub(/[ \t].*$/, "", digest)
                sub(/^[^ \t]+[ \t]+\*?/, "", name)
            } else bad("expected a digest and the name of a file")
            sub(/^.*[\/\\]/, "", name)
            if (!(length(digest) in kind)) bad("a digest of unknown kind")
            if (name != wanted) next
            digest = kind[length(digest)] ":" tolower(digest)
            if (found != "" && found != digest) bad("a second digest of " name ", and another one")
            found = digest
        }
        END { if (!failed && found != "") print found }' "$1"
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
    case $digest in
        -)
            die "$file: no digest is known; it has sha256:$SHA256, and if you trust it, write" \
                "\"$SHA256  $name\" into a file and give that with --checksums" ;;
        sha256:*) seen=sha256:$SHA256 ;;
        md5:* | sha1:* | sha224:* | sha384:* | sha512:*)
            seen=$("${digest%%:*}sum" <"$file") && seen=${digest%%:*}:${seen%% *} ;;
        *) die "$name: digest $digest: expected sha256:HEX, md5:HEX or -" ;;
    esac
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
        return 0
    fi
    if [[ ! -f $file.new ]]; then
        run mkdir -p "$(dirname "$file")"
        run curl --fail --location --retry 5 --continue-at - --output "$file.part" "$url"
        run mv "$file.part" "$file.new"
    fi
    ((DRY_RUN)) || verify "$file.new" "$digest"
    run mv "$file.new" "$file"
}

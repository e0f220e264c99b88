# shellcheck shell=bash
# Ending a script ends everything that it started. Sourced by lib.sh; defines
#
#     interruptible COMMAND...   run COMMAND so that a signal to this script is handled at once
#
# and traps for HUP, INT (Ctrl-C) and TERM, which end all processes below this one, whatever their
# groups, and exit with 128 and the number of the signal.

# A command that runs in the background has to be told to keep the standard input.
{ : <&0; } 2>/dev/null || exec </dev/null

# A signal may arrive while the standard error goes to a file.
exec {MESSAGES}>&2

# bash handles a signal during "wait", but not while a command runs in the foreground.
interruptible() {
    local status=0
    "$@" <&0 &
    wait "$!" || status=$?
    return "$status"
}

# Print "PID PARENT" for every process except zombies.
_processes() {
    if [[ -r /proc/self/stat ]]; then
        cat /proc/[0-9]*/stat 2>/dev/null |
            sed -n 's/^\([0-9]*\) .*) [^ Z] \([0-9]*\) .*/\1 \2/p'
    else
        ps -A -o pid= -o ppid= -o state= | awk '$3 !~ /^Z/ { print $1, $2 }'
    fi
}

# Print those of the given processes that are alive, and all below them.
_family() {
    _processes | awk -v roots="$*" '
        BEGIN { count = split(roots, root); for (i = 1; i <= count; i++) wanted[root[i]] }
        { parent[$1] = $2 }
        END {
            for (pid in parent) {
                for (above = pid; above in parent && !(above in wanted);) above = parent[above]
                if (above in wanted) print pid
            }
        }'
}

# A process whose parent has ended belongs to another, so all that were seen are remembered.
_end() {
    local name=$1 status=$2 signal=TERM deadline=$((SECONDS + 10)) seen=" $$ " alive=1 process
    trap '' HUP INT TERM
    log "stopped by SIG$name; start it again to go on" 2>&"$MESSAGES"
    while ((alive)); do
        alive=0
        for process in $(_family "$seen"); do
            if [[ $process == "$$" ]] || ! kill -0 "$process" 2>/dev/null; then
                continue
            fi
            alive=1
            [[ $signal == TERM && $seen == *" $process "* ]] || kill -s "$signal" "$process" || true
            seen+="$process "
        done 2>/dev/null
        ((SECONDS < deadline)) || signal=KILL
        ((!alive)) || sleep 0.1
    done
    exit "$status"
}

trap '_end HUP 129' HUP
trap '_end INT 130' INT
trap '_end TERM 143' TERM

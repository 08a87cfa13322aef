#!/bin/sh
# Plays the OCI runtime below containerd: a container is a process that sleeps. With it, containerd runs where no real
# container can be made; what containerd says over NRI is the same.
state=/tmp/numaherd/containers
mkdir -p "$state"
pidfile='' command='' id=''
while [ $# -gt 0 ]; do
    case $1 in
    --root | --log | --log-format | --console-socket | --bundle | --process | --resources) shift 2 ;;
    --pid-file) pidfile=$2 && shift 2 ;;
    --*) shift ;;
    *)
        if [ -z "$command" ]; then command=$1; else id=${id:-$1}; fi
        shift
        ;;
    esac
done
case $command in
create)
    sleep 100000 >/dev/null 2>&1 </dev/null &
    echo $! >"$state/$id"
    [ -z "$pidfile" ] || printf %s $! >"$pidfile"
    ;;
state) printf '{"ociVersion":"1.0.2","id":"%s","status":"running","pid":%s,"bundle":"/"}\n' "$id" "$(cat "$state/$id")" ;;
kill) kill -9 "$(cat "$state/$id")" 2>/dev/null ;;
delete)
    [ ! -f "$state/$id" ] || kill -9 "$(cat "$state/$id")" 2>/dev/null
    rm -f "$state/$id"
    ;;
esac
exit 0

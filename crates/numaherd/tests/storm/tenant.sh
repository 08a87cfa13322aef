# A tenant of a storm's machine. It starts processes, in the way that $1 names, for as long as the file "go" is there;
# then all that it has started rests. It starts $2 at most that stay, and writes a line for each that it starts.
way=$1 most=$2 n=${3:-0}

# A FIFO that nobody writes.
rest() { read -r _ <never; }
goes() { [ -e go ]; }
# Uses a processor for a while, so that it is placed.
work() { i=0; while [ $i -lt "$1" ] && goes; do i=$((i + 1)); done; }
brief() { work 100; goes || rest; }

# Children that stay, and some that have children and end.
fork() { ( ( brief ) & ( brief ) & brief ) & rest & }
# Orphans, in this session and in sessions of their own.
daemon() { ( rest & ); ( ( brief ) & ); ( setsid sh "$0" rest 0 & ); }
# Each starts the next one and ends; a shell counts how deep it is.
hop() {
    goes || rest
    n=$((n + 1))
    [ $n -lt 500 ] || exec sh "$0" chain "$most"
    ( hop ) &
    exit
}

case $way in
rest) rest ;;
work) while goes; do :; done ;;
fork | daemon)
    while goes; do
        work 200
        if [ "$n" -lt "$most" ]; then n=$((n + 1)); $way; fi
        echo
    done
    ;;
chain) hop ;;
hop)
    ( hop ) &
    while goes; do work 200; echo; done
    ;;
hostile)
    # Masks of single CPUs, as the herd sets them, and chains of processes that dodge whoever looks for them.
    ( hop ) &
    while goes; do
        for cpu in 0 1; do
            taskset -pc $cpu $$ >/dev/null
            if [ "$n" -lt "$most" ]; then n=$((n + 1)); ( ( brief ) & ); fi
            work 100
        done
        echo
    done
    ;;
exec)
    work 200
    if goes; then
        if [ "$n" -lt "$most" ]; then n=$((n + 1)); rest & fi
        echo
        exec sh "$0" exec "$most" "$n"
    fi
    ;;
esac
rest

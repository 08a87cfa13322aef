# The package, upgraded and downgraded with a running herd, under a real systemd on four nodes of two CPUs. $PACKAGE is the
# package's file, $NEWER one of a later version.
. "${0%/*}/functions.sh"

dpkg --no-triggers -i "$PACKAGE" >/dev/null || exit 1
begin_busy_program

# Another version, up and down, while the herd has changed affinities. What the service is started with after it is read
# from the configuration then: a policy that places nothing, so that the affinity is as found if it was given back.
version() { dpkg-query -W -f '${Version}' numaherd; }
has_another() { is_active && [ "$(shown MainPID)" != "$main" ] && tells linux; }
for change in "an upgrade $NEWER" "a downgrade $PACKAGE"; do
    file=${change##* } change=${change% *}
    configure 'policy = "random"'
    systemctl restart numaherd
    run_until_placed
    main=$(shown MainPID)
    configure 'policy = "linux"'
    echo "# a person's own line" >>/etc/numaherd/numaherd.toml
    dpkg --no-triggers --force-confold -i "$file" >/run/dpkg 2>&1 || cat /run/dpkg
    say "$change replaces the package" "$(version)" "$(dpkg-deb -f "$file" Version)"
    until_holds has_another && echo "$change restarts a running herd"
    given_back "$change gives back"
    say "$change keeps the configuration" "$(tail -n 1 /etc/numaherd/numaherd.toml)" "# a person's own line"
    systemctl stop numaherd
    dpkg --no-triggers --force-confold -i "$file" >/run/dpkg 2>&1 || cat /run/dpkg
    say "$change leaves a stopped herd stopped" "$(systemctl is-active numaherd)" inactive
done
# What a later program may leave: a journal that this one does not know. It is refused and kept.
install -d -m 700 /run/numaherd
header='{"numaherd-journal":99,"boot":"another"'
sum=$(printf %s "$header" | gzip | tail -c 8 | od -An -tx4 -N4)
printf '%s,"sum":"%s"}\n' "$header" "${sum# }" >/run/numaherd/journal
cp /run/numaherd/journal /run/journal
numaherd release >/run/released 2>&1
say "a later journal is refused" "$(grep -c 99 /run/released) $(cmp /run/journal /run/numaherd/journal && echo kept)" "1 kept"
rm -r /run/numaherd
kill $p
exit 0

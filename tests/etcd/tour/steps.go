// This file is the tour itself: every step is a command line of etcdctl.
package main

// A step is one command. Its words are split at blanks; single quotes keep blanks and empty words together.
type step struct {
	line  string
	stdin string
	// until, if set, ends the command with SIGINT once its output holds this text. What follows the text is not compared,
	// nor is the exit code unless exits is set.
	until string
	exits bool
	// mirrored, if set, ends the command with SIGINT once the second server holds this key.
	mirrored string
	// formats is a list of output formats; empty are all of `formats`.
	formats []string
}

// A group is what is printed as one line. Later groups see the data of earlier ones.
type group struct {
	name  string
	steps []step
}

// formats are those that every step is run in, each on a fresh pair of servers.
var formats = []string{"simple", "json", "table", "fields", "protobuf"}

// simple is for steps whose output does not depend on the format, or that take long.
var simple = []string{"simple"}

func lines(lines ...string) []step {
	var steps []step
	for _, line := range lines {
		steps = append(steps, step{line: line})
	}
	return steps
}

func only(formats []string, steps []step) []step {
	for i := range steps {
		steps[i].formats = formats
	}
	return steps
}

var tour = []group{
	{"put", append(lines(
		"put a 1", "put a 2 --prev-kv", "put b 1", "put c '' ", "put dir/1 x", "put dir/2 y", "put dir/3 z",
		"put a ignored --ignore-value", "put a --ignore-value", "put a --ignore-value --prev-kv", "put a 3 --ignore-lease",
		"put none --ignore-value", "put none x --ignore-lease", "put '' x", "put a 4 --lease=1234", "put a 4 --lease=zz",
		"put -- -dash value", "put a", "put", "put zz/ä/ö ünïcode",
	), step{line: "put fromstdin", stdin: "several\nlines\n"})},

	{"get", lines(
		"get a", "get none", "get a --rev=2", "get a --rev=3", "get a --rev=99999", "get dir/ --prefix", "get dir/1 dir/3",
		"get b --from-key", "get '' --prefix", "get '' --from-key", "get '' --prefix --limit=2",
		"get '' --prefix --keys-only", "get '' --prefix --count-only", "get '' --prefix --limit=2 --count-only",
		"get '' --prefix --order=ASCEND", "get '' --prefix --order=DESCEND", "get '' --prefix --order=SIDEWAYS",
		"get '' --prefix --sort-by=CREATE --order=DESCEND", "get '' --prefix --sort-by=KEY",
		"get '' --prefix --sort-by=VALUE", "get '' --prefix --sort-by=MODIFY", "get '' --prefix --sort-by=VERSION --order=DESCEND",
		"get '' --prefix --sort-by=COLOUR", "get '' --prefix --sort-by=VALUE --limit=3 --order=DESCEND",
		"get a --consistency=s", "get a --consistency=l", "get a --consistency=x", "get a b --prefix", "get a --from-key --prefix",
		"get a --keys-only --count-only", "get '' --prefix --min-create-rev=4", "get '' --prefix --max-create-rev=4",
		"get '' --prefix --min-mod-rev=5", "get '' --prefix --max-mod-rev=5 --limit=1", "get", "get a b c",
		"get dir/ --prefix --hex", "get a --print-value-only", "get dir/ --prefix --print-value-only", "get c b",
		"get '' --prefix --rev=4", "get a --limit=-1", "get a --rev=-1", "get z a", "get fromstdin",
	)},

	{"del", lines(
		"put d1 1", "put d2 2", "put d3 3", "put e/1 1", "put e/2 2", "put f1 1", "put f2 2", "del d1", "del d1", "del none",
		"del d2 --prev-kv", "put d2 2", "del d2 d4 --prev-kv", "del e/ --prefix --prev-kv", "del e/ --prefix",
		"put zzz1 1", "put zzz2 1", "del zzz --from-key --prev-kv", "del f1 f3 --range", "del f2 --range", "del f2",
		"del a b --prefix", "del a --from-key --prefix", "del", "del ''", "del a b c",
	)},

	{"txn", txnSteps()},

	{"watch", watchSteps()},

	// These hash everything that is stored, and so come before any key with a lease, whose id the server chooses.
	{"maintenance", lines(
		"alarm list", "alarm disarm", "alarm", "endpoint health", "endpoint status", "endpoint hashkv", "endpoint hashkv --rev=5",
		"endpoint hashkv --rev=99999", "endpoint status --cluster", "endpoint health --cluster", "member list", "member list --hex",
		"member list --consistency=s", "version", "endpoint", "move-leader", "move-leader zz",
		"auth status", "defrag", "snapshot save {dir}/saved", "snapshot save", "get '' --prefix --keys-only",
	)},

	{"make-mirror", only(simple, []step{
		{line: "put m/1 one"}, {line: "put m/2 two"}, {line: "put m/zz end"},
		{line: "make-mirror {second} --prefix m/", mirrored: "m/zz"},
		{line: "get '' --prefix --endpoints={second}"},
		{line: "make-mirror {second} --prefix m/ --dest-prefix n/", mirrored: "n/zz"},
		{line: "get n/ --prefix --endpoints={second}"},
		{line: "make-mirror {second} --prefix m/ --no-dest-prefix", mirrored: "zz"},
		{line: "make-mirror {second} --prefix dir/ --rev=2", mirrored: "3"},
		{line: "get '' --prefix --endpoints={second} --write-out=fields"},
		{line: "make-mirror {second} --no-dest-prefix --dest-prefix x"}, {line: "make-mirror"},
	})},

	{"compaction", lines(
		"compaction 99999", "compaction 5", "compaction 5", "compaction 4", "get a --rev=4", "get a --rev=5", "get '' --prefix --rev=5",
		"compaction 9 --physical", "compaction 0", "compaction", "compaction x", "compaction -- -1", "get a --rev=8",
		"endpoint hashkv --rev=4", "endpoint hashkv --rev=12", "watch a --rev=2", "watch '' --prefix --rev=8 --prev-kv",
		"get '' --prefix", "get '' --prefix --rev=9",
	)},

	{"lease", leaseSteps()},

	{"lock", []step{
		{line: "lock l1 echo held", formats: simple},
		{line: "lock l1 --ttl=20 -- sh -c 'echo $ETCD_LOCK_REV'", formats: simple},
		{line: "lock l1 -- sh -c 'exit 7'", formats: simple},
		{line: "lock l2", until: "l2/", exits: true, formats: simple},
		{line: "get l --prefix"},
		{line: "lock", formats: simple},
	}},

	{"elect", []step{
		{line: "elect e1 zz-end", until: "zz-end", exits: true, formats: []string{"simple", "fields", "json"}},
		{line: "get e1 --prefix"},
		{line: "put obs/1 zz-end"},
		{line: "elect -l obs", until: "zz-end", formats: []string{"simple", "fields", "json"}},
		{line: "elect e1", formats: simple}, {line: "elect -l e1 x", formats: simple}, {line: "elect", formats: simple},
		{line: "del obs/1"},
	}},

	{"check and completion", only(simple, lines(
		"completion bash", "help", "put --help", "nothing", "get a --nothing", "get a --write-out=nothing",
		"get a --command-timeout=1x", "del --help", "downgrade", "member add", "member remove", "member promote", "member update",
	))},
}

// notYet is what Sternpost does not do, by what its message calls it: remove a row once the command works, and put the
// command into a group above.
var notYet = []struct{ name, line, stdin string }{
	{"AuthEnable", "auth enable", ""},
	{"AuthDisable", "auth disable", ""},
	{"UserAdd", "user add me:secret", ""},
	{"UserList", "user list", ""},
	{"UserGet", "user get me", ""},
	{"UserDelete", "user delete me", ""},
	{"UserGrantRole", "user grant-role me role", ""},
	{"UserRevokeRole", "user revoke-role me role", ""},
	{"UserChangePassword", "user passwd me --interactive=false", "secret\n"},
	{"RoleAdd", "role add role", ""},
	{"RoleList", "role list", ""},
	{"RoleGet", "role get role", ""},
	{"RoleDelete", "role delete role", ""},
	{"RoleGrantPermission", "role grant-permission role read key", ""},
	{"RoleRevokePermission", "role revoke-permission role key", ""},
	{"MemberAdd", "member add other --peer-urls=http://127.0.0.1:1", ""},
	{"MemberRemove", "member remove 1", ""},
	{"MemberUpdate", "member update 1 --peer-urls=http://127.0.0.1:1", ""},
	{"MemberPromote", "member promote 1", ""},
	{"MoveLeader", "move-leader 1", ""},
	{"Downgrade", "downgrade validate 3.6.0", ""},
}

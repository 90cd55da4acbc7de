// This file holds the steps that need input or an end of their own: transactions, watches and leases.
package main

func txnSteps() []step {
	compares := []string{
		`value("t") = "1"`, `value("t") != "1"`, `value("t") < "2"`, `value("t") > "0"`,
		`version("t") = "1"`, `version("none") = "0"`, `create("t") > "1"`, `c("t") < "2"`, `mod("t") > "3"`, `m("none") = "0"`,
		`lease("t") = "0"`, `val("none") = ""`, `ver("t") > "0"`,
		// Not understood:
		`value("t") ~ "1"`, `colour("t") = "1"`, `value(t = "1"`, `mod("t") = "x"`, `value("t")`, `nonsense`,
	}
	steps := lines("put t 1")
	for _, compare := range compares {
		steps = append(steps, step{line: "txn", stdin: compare + "\n\nget t\n\nget none\n\n", formats: []string{"simple", "json"}})
	}
	bodies := []string{
		"\nput t1 1\nput t2 2\nget t1\ndel t2\n\n\n",
		"value(\"t\") = \"0\"\n\nput t 1\n\nput t 2 \nget t\ndel none\n\n",
		"value(\"t\") = \"2\"\nmod(\"t\") > \"0\"\n\nput t \"a b\"\nget t t3\n\nget t\n\n",
		"\nput t 1\nput t 2\n\n\n",
		"\nput t 1\ndel t\n\n\n",
		"\nput t 1 --lease=77\n\n\n",
		"\nput t 1 --ignore-value\n\n\n",
		"\nput none2 --ignore-value\n\n\n",
		"\nget t --rev=99999\n\n\n",
		"\nget '' --prefix --limit=2 --keys-only\nget t --count-only\n\n\n",
		"\ndel t1 --prev-kv\nput t 5 --prev-kv\n\n\n",
		"\nput \"\" 1\n\n\n",
		"\nwatch t\n\n\n",
		"\nput\n\n\n",
		"\n\n\n",
		"",
	}
	for _, body := range bodies {
		steps = append(steps, step{line: "txn", stdin: body})
	}
	return append(steps,
		step{line: "txn --interactive", stdin: "value(\"t\") = \"5\"\n\nput t 6\n\nput t 7\n\n", formats: simple},
		step{line: "txn -i", stdin: "nonsense\n\n\n\n", formats: simple},
		step{line: "txn extra", formats: simple},
		step{line: "get t --prefix"},
	)
}

// The end of each watched prefix is a key with the value zz-end, so that a watch knows when it has seen all.
func watchSteps() []step {
	shown := []string{"simple", "json", "fields"}
	watches := []step{
		{line: "watch w/ --prefix --rev=2"},
		{line: "watch w/ --prefix --rev=2 --prev-kv"},
		{line: "watch w/ w0 --rev=2 --progress-notify"},
		{line: "watch w/ --prefix --rev=2 -- sh -c 'echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY $ETCD_WATCH_VALUE'"},
		{line: "watch --rev=2 w/z", until: "zz-end"},
		{line: "watch '' --from-key --rev=2"},
		{line: "watch -i --rev=2 --prefix", stdin: "nonsense\nput a b\nwatch\nwatch w/ --rev=2 --prefix\n"},
	}
	steps := lines("put w/1 1", "put w/1 2", "put w/2 1", "del w/1", "del w/1", "del w/2", "put w/z zz-end")
	for _, watch := range watches {
		watch.until, watch.formats = "zz-end", shown
		steps = append(steps, watch)
	}
	return append(steps,
		step{line: "watch", formats: simple},
		step{line: "watch w/ w0 --prefix", formats: simple},
		step{line: "watch -i", stdin: "nonsense\n", formats: simple},
		// A watch of an empty range is refused by the server.
		step{line: "watch b a", formats: simple},
		step{line: "watch w/1 --rev=2 -- sh -c 'exit 3'", formats: simple},
		step{line: "get w/ --prefix"},
	)
}

// At most one key is attached when the keys are shown: etcd keeps no order among them.
func leaseSteps() []step {
	return lines(
		"lease list", "lease grant 600", "lease grant 900", "lease grant 0", "lease grant -- -1", "lease grant 9000000001",
		"lease grant x", "lease grant", "lease list", "lease timetolive {lease1}", "put leased/1 x --lease={lease1}",
		"put leased/2 x", "put leased/3 x --lease={lease2}", "get leased/ --prefix",
		"lease timetolive {lease1} --keys", "lease timetolive {lease2} --keys", "put leased/1 y --ignore-lease", "get leased/1",
		"del leased/3", "put leased/1 --ignore-value --lease={lease2}", "get leased/1",
		"lease timetolive {lease2} --keys", "put leased/4 x --lease={lease1}",
		"lease keep-alive {lease1} --once", "lease keep-alive 7 --once", "lease keep-alive 7", "lease keep-alive", "lease keep-alive zz",
		"lease revoke {lease1}", "lease revoke {lease1}", "lease timetolive {lease1}", "lease timetolive {lease1} --keys",
		"lease timetolive zz", "lease revoke zz", "lease revoke", "get leased/ --prefix", "lease list", "lease revoke {lease2}",
		"lease list", "get leased/ --prefix --count-only", "lease",
	)
}

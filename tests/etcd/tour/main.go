// Command tour runs every command of etcdctl that applies against a real etcd and against Sternpost, in each output
// format, and compares what it writes and how it ends.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"sternpost/tests/etcd/servers"
)

// floor is the number of comparisons below which the tour has lost steps; wallLimit bounds all of it.
const (
	floor     = 950
	wallLimit = 110 * time.Second
)

// compared is one step in one format, as both sides gave it.
type compared struct {
	name   string
	sides  [2]result
	groups string
}

func main() {
	record := flag.String("record", "", "write all outputs into files of this `directory`")
	falsify := flag.Bool("falsify", false, "alter one output of Sternpost: the run must fail")
	flag.Parse()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), wallLimit)
	defer cancel()
	all, failures, err := runAll(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, "tour:", err)
		os.Exit(1)
	}
	if *falsify {
		alter(&all[rand.IntN(len(all))])
	}
	for _, c := range all {
		if difference := differs(c); difference != "" {
			failures++
			fmt.Print(difference)
		}
	}
	if *record != "" {
		if err := write(*record, all); err != nil {
			fmt.Fprintln(os.Stderr, "tour:", err)
			os.Exit(1)
		}
	}
	for _, g := range tour {
		count := 0
		for _, c := range all {
			if c.groups == g.name {
				count++
			}
		}
		fmt.Printf("tour: %-22s %3d steps, %4d comparisons\n", g.name, len(g.steps), count)
	}
	fmt.Printf("tour: %d commands are not there yet, and say so\n", len(notYet))
	if !prove(all) {
		failures++
	}
	if len(all) < floor {
		fmt.Printf("tour: %d comparisons are fewer than %d\n", len(all), floor)
		failures++
	}
	servers.Result(int64(len(all)-min(failures, len(all))), int64(failures), time.Since(began))
	if failures > 0 {
		os.Exit(1)
	}
}

// runAll takes the whole tour once per format, each time with fresh servers. failures counts the rows of notYet that
// did not hold, which are printed.
func runAll(ctx context.Context) (all []compared, failures int, err error) {
	dir, err := servers.Scratch()
	if err != nil {
		return nil, 0, err
	}
	defer os.RemoveAll(dir)
	for _, format := range formats {
		got, failed, err := runFormat(ctx, filepath.Join(dir, format), format)
		if err != nil {
			return nil, 0, fmt.Errorf("format %s: %w", format, err)
		}
		all, failures = append(all, got...), failures+failed
	}
	return all, failures, nil
}

func runFormat(ctx context.Context, dir, format string) (all []compared, failures int, err error) {
	var sides [2]*side
	for i, kind := range []servers.Kind{servers.Etcd, servers.Sternpost} {
		if sides[i], err = newSide(ctx, kind, dir); err != nil {
			return nil, 0, err
		}
		defer sides[i].stop()
	}
	for _, g := range tour {
		for _, st := range g.steps {
			if len(st.formats) > 0 && !slices.Contains(st.formats, format) {
				continue
			}
			if format == "protobuf" && !slices.Contains([]string{"put", "get", "del", "txn"}, g.name) {
				continue
			}
			c := compared{name: fmt.Sprintf("%s [%s] etcdctl %s", g.name, format, st.line), groups: g.name}
			if st.stdin != "" {
				c.name += fmt.Sprintf(" <<< %q", st.stdin)
			}
			if err := both(func(i int) (err error) {
				c.sides[i], err = sides[i].run(ctx, st, format)
				return err
			}); err != nil {
				return nil, 0, fmt.Errorf("%s: %w", c.name, err)
			}
			all = append(all, c)
		}
	}
	if format == simple[0] {
		failures, err = runNotYet(ctx, sides[1])
	}
	return all, failures, err
}

// both runs a function for each side at the same time.
func both(run func(i int) error) error {
	first := make(chan error, 1)
	go func() { first <- run(0) }()
	second := run(1)
	if err := <-first; err != nil {
		return err
	}
	return second
}

// runNotYet asserts that what is missing says so.
func runNotYet(ctx context.Context, s *side) (failures int, err error) {
	for _, row := range notYet {
		got, err := s.run(ctx, step{line: row.line, stdin: row.stdin}, "simple")
		if err != nil {
			return failures, err
		}
		want := "this server does not support " + row.name + " yet"
		if got.exit == 0 || !strings.Contains(got.stderr, want) {
			failures++
			fmt.Printf("NOT AS LISTED: etcdctl %s: want %q and a failure; if it works now, remove its row of notYet\n%s\n", row.line, want, got)
		}
	}
	return failures, nil
}

// differs is empty if both sides are equal, or shows both.
func differs(c compared) string {
	if c.sides[0] == c.sides[1] {
		return ""
	}
	return fmt.Sprintf("DIFFERENT: %s\n=== etcd: %s\n=== sternpost: %s\n", c.name, c.sides[0], c.sides[1])
}

func alter(c *compared) {
	r := &c.sides[1]
	switch rand.IntN(3) {
	case 0:
		r.exit++
	case 1:
		r.stderr += "x"
	default:
		at := rand.IntN(len(r.stdout) + 1)
		r.stdout = r.stdout[:at] + "\x01" + r.stdout[at:]
	}
}

// prove alters one output and sees whether that is noticed.
func prove(all []compared) bool {
	if len(all) == 0 {
		return false
	}
	c := all[rand.IntN(len(all))]
	c.sides[1] = c.sides[0]
	before := differs(c)
	alter(&c)
	noticed := before == "" && differs(c) != ""
	fmt.Printf("tour: proof: one altered output (%s) was noticed: %v\n", c.name, noticed)
	return noticed
}

func write(dir string, all []compared) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i, kind := range []servers.Kind{servers.Etcd, servers.Sternpost} {
		var text strings.Builder
		for _, c := range all {
			fmt.Fprintf(&text, "##### %s\n%s\n", c.name, c.sides[i])
		}
		if err := os.WriteFile(filepath.Join(dir, string(kind)+".txt"), []byte(text.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

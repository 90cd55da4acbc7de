// Command tls compares how a real etcd and Sternpost take TLS flags, and which clients they let in.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sternpost/tests/etcd/servers"
)

// floor is the number of comparisons below which rows were lost; atOnce how many servers run at the same time.
const (
	floor  = 260
	atOnce = 4
)

var kinds = []servers.Kind{servers.Etcd, servers.Sternpost}

// tally counts from several goroutines.
type tally struct {
	mu         sync.Mutex
	good, bad  int64
	differ     int
	everything bool
}

func main() {
	falsify := flag.Bool("falsify", false, "expect the opposite of one row: the run must fail")
	verbose := flag.Bool("v", false, "print every outcome")
	flag.Parse()
	began := time.Now()
	dir, err := servers.Scratch()
	if err != nil {
		fmt.Fprintln(os.Stderr, "tls:", err)
		os.Exit(1)
	}
	defer os.RemoveAll(dir)
	if *falsify {
		houses[0].visits[0].sternpost = refused
	}
	all := &tally{everything: *verbose}
	var running sync.WaitGroup
	free := make(chan struct{}, atOnce)
	run := func(task func(dir string)) {
		free <- struct{}{}
		running.Go(func() {
			defer func() { <-free }()
			own := must(os.MkdirTemp(dir, ""))
			task(own)
			_ = os.RemoveAll(own)
		})
	}
	for _, row := range allStarts {
		for _, kind := range kinds {
			run(func(dir string) { all.start(kind, row, dir) })
		}
	}
	for _, row := range houses {
		for _, kind := range kinds {
			run(func(dir string) { all.house(kind, row, dir) })
		}
	}
	running.Wait()
	fmt.Printf("tls: %d outcomes, in %d rows the two differ as differences.md says\n", all.good+all.bad, all.differ)
	if all.good+all.bad < floor {
		fmt.Printf("tls: fewer than %d\n", floor)
		all.bad++
	}
	servers.Result(all.good, all.bad, time.Since(began))
	if all.bad > 0 {
		os.RemoveAll(dir)
		os.Exit(1)
	}
}

// files makes certificates for one server, which may replace them.
func files(dir string) *pki {
	pkiDir := filepath.Join(dir, "pki")
	if err := os.Mkdir(pkiDir, 0o700); err != nil {
		panic(err)
	}
	return newPKI(pkiDir)
}

func (t *tally) start(kind servers.Kind, row start, dir string) {
	p := files(dir)
	s := launch(kind, dir, p, row.flags)
	defer s.stop()
	found := s.outcome(p.as("good"), p.as("a host"), nil)
	wanted := expected(kind, row.etcd, row.sternpost)
	log := string(must(os.ReadFile(s.log)))
	// Ours says why in one line.
	if found == refuses && kind == servers.Sternpost && strings.Count(strings.TrimSpace(log), "\n") != 0 {
		found += " in more than a line"
	}
	t.note(kind, row.flags, "start", wanted, found, row.etcd != row.sternpost, log)
}

func (t *tally) house(kind servers.Kind, row house, dir string) {
	p := files(dir)
	s := launch(kind, dir, p, row.flags)
	defer s.stop()
	if found := s.outcome(p.as("good"), p.as("a host"), p.as("none")); found != starts && row.visits[0].etcd != refused {
		t.note(kind, row.flags, "start", starts, found, false, string(must(os.ReadFile(s.log))))
		return
	}
	for _, visit := range row.visits {
		make := visit.make
		if make == nil {
			make = func(s *process, p *pki) string { return s.call(s.client, p.as(visit.name)) }
		}
		wanted := expected(kind, visit.etcd, visit.sternpost)
		t.note(kind, row.flags, visit.name, wanted, make(s, p), visit.etcd != visit.sternpost, "")
	}
}

func expected(kind servers.Kind, etcd, sternpost string) string {
	if kind == servers.Etcd {
		return etcd
	}
	return sternpost
}

func (t *tally) note(kind servers.Kind, flags, what, wanted, found string, differ bool, log string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if differ && kind == servers.Etcd {
		t.differ++
	}
	if wanted == found {
		t.good++
	} else {
		t.bad++
	}
	if wanted != found || t.everything {
		fmt.Printf("tls: %s [%s] %s: %s, expected %s\n", kind, strings.TrimSpace(flags), what, found, wanted)
	}
	if wanted != found && log != "" || t.everything && found == refuses {
		lines := strings.Split(strings.TrimSpace(log), "\n")
		fmt.Println("    " + strings.Join(lines[max(0, len(lines)-3):], "\n    "))
	}
}

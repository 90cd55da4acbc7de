// Command clients runs the official Go client, with assertions of its own, against Sternpost and against a real etcd: what
// holds for the real one must hold for Sternpost.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	clientv3 "go.etcd.io/etcd/client/v3"

	"sternpost/tests/etcd/servers"
)

// floor is the number of checks, for each kind of server, below which the scenarios have lost some.
const (
	floor         = 4000
	wallLimit     = 140 * time.Second
	scenarioLimit = 60 * time.Second
)

// A scenario has the server to itself if alone is set (it restarts or compacts); the others run at the same time, each
// on keys of its own prefix.
type scenario struct {
	name  string
	alone bool
	run   func(t *test)
}

var scenarios = []scenario{
	{"kv", false, kv}, {"txn", false, txn}, {"errors by type", false, errorsByType}, {"paging", false, paging},
	{"range stream", false, rangeStream},
	{"lease", false, leases}, {"lease expiry", false, leaseExpiry}, {"keep alive", false, keepAlive},
	{"watch", false, watches}, {"watch fragments", false, watchFragments}, {"watch progress", false, watchProgress},
	{"mutex", false, mutex}, {"rwmutex", false, rwMutex}, {"queues", false, queues}, {"barriers", false, barriers},
	{"election", false, election}, {"session lost", false, sessionLost}, {"stm", false, stm},
	{"leasing", false, leasingCache}, {"kubernetes", false, kubernetesInterface}, {"mirror", false, mirrorSyncer},
	{"ordering", false, orderingWrapper}, {"namespace", false, namespaceWrapper}, {"naming", false, naming},
	{"dead endpoint", false, deadEndpoint}, {"maintenance", false, maintenance},
	{"compaction", true, compaction}, {"restarts", true, restarts},
}

// test is what a scenario gets: a client, a prefix, and ways to check.
type test struct {
	ctx    context.Context
	server *servers.Server
	client *clientv3.Client
	prefix string

	checks atomic.Int64
	mutex  sync.Mutex
	failed []string
}

// errAbort ends a scenario that cannot go on.
var errAbort = errors.New("abort")

// ok counts a check and notes its failure.
func (t *test) ok(holds bool, format string, args ...any) {
	t.checks.Add(1)
	if !holds {
		t.mutex.Lock()
		defer t.mutex.Unlock()
		t.failed = append(t.failed, fmt.Sprintf(format, args...))
	}
}

// must counts a check that the rest depends on.
func (t *test) must(err error, format string, args ...any) {
	t.ok(err == nil, "%s: %v", fmt.Sprintf(format, args...), err)
	if err != nil {
		panic(errAbort)
	}
}

// is checks for an error by type.
func (t *test) is(err, want error, what string) {
	t.ok(errors.Is(err, want), "%s: want %v, got %v", what, want, err)
}

// each runs n functions at the same time and returns when all have returned.
func (t *test) each(n int, run func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() {
			defer t.recovered()
			run(i)
		})
	}
	group.Wait()
}

func (t *test) recovered() {
	if p := recover(); p != nil && p != errAbort {
		panic(p)
	}
}

func (t *test) put(key, value string, options ...clientv3.OpOption) int64 {
	put, err := t.client.Put(t.ctx, t.prefix+key, value, options...)
	t.must(err, "put %s", key)
	return put.Header.Revision
}

func (t *test) connect(endpoints ...string) *clientv3.Client {
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second, Logger: zap.NewNop()})
	t.must(err, "connect")
	return client
}

func main() {
	filter := flag.String("only", "", "run only scenarios whose name contains this `text`")
	flag.Parse()
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), wallLimit)
	defer cancel()
	passed, failed := int64(0), 0
	for _, kind := range []servers.Kind{servers.Etcd, servers.Sternpost} {
		checks, failures, err := runKind(ctx, kind, *filter)
		if err != nil {
			fmt.Fprintln(os.Stderr, "clients:", err)
			os.Exit(1)
		}
		if *filter == "" && checks < floor {
			fmt.Printf("clients: %d checks are fewer than %d\n", checks, floor)
			failures++
		}
		passed, failed = passed+checks, failed+failures
		fmt.Printf("clients: %s: %d checks, %d scenarios failed, %.1f s\n", kind, checks, failures, time.Since(began).Seconds())
	}
	servers.Result(passed, int64(failed), time.Since(began))
	if failed > 0 {
		os.Exit(1)
	}
}

func runKind(ctx context.Context, kind servers.Kind, filter string) (checks int64, failures int, err error) {
	dir, err := servers.Scratch()
	if err != nil {
		return 0, 0, err
	}
	defer os.RemoveAll(dir)
	server, err := servers.Start(ctx, kind, filepath.Join(dir), "--watch-progress-notify-interval=1s")
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = server.Kill() }()
	var group sync.WaitGroup
	var mutex sync.Mutex
	for _, s := range scenarios {
		if !strings.Contains(s.name, filter) {
			continue
		}
		one := func() {
			count, failed := runOne(ctx, kind, server, s)
			mutex.Lock()
			defer mutex.Unlock()
			checks += count
			if failed {
				failures++
			}
		}
		if s.alone {
			group.Wait()
			one()
		} else {
			group.Go(one)
		}
	}
	group.Wait()
	return checks, failures, nil
}

func runOne(ctx context.Context, kind servers.Kind, server *servers.Server, s scenario) (checks int64, failed bool) {
	ctx, cancel := context.WithTimeout(ctx, scenarioLimit)
	defer cancel()
	began := time.Now()
	t := &test{ctx: ctx, server: server, prefix: strings.ReplaceAll(s.name, " ", "-") + "/"}
	func() {
		defer t.recovered()
		t.client = t.connect(server.Endpoint)
		defer t.client.Close()
		s.run(t)
	}()
	verdict := "ok"
	if len(t.failed) > 0 {
		verdict = "FAILED\n    " + strings.Join(t.failed, "\n    ")
	}
	fmt.Printf("clients: %-9s %-16s %4d checks, %5.1f s: %s\n", kind, s.name, t.checks.Load(), time.Since(began).Seconds(), verdict)
	return t.checks.Load(), len(t.failed) > 0
}

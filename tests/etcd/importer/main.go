// Command importer lets etcds of several versions write histories, imports their files, and compares what both servers answer.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.etcd.io/bbolt"
	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"sternpost/tests/etcd/servers"
)

// limit bounds the whole run once the etcds are there.
const limit = 120 * time.Second

func main() {
	versions := flag.String("versions", "3.4,3.5,3.7", "the etcds whose files are imported")
	perhaps := flag.String("perhaps", "", "those of them that may be missing where no package of theirs can be fetched: named, and left out")
	requests := flag.Int("requests", 500, "requests before each file is taken")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "what the histories follow from")
	cache := flag.String("cache", os.Getenv("ETCD_CACHE"), "where the etcds are kept")
	falsify := flag.String("falsify", "", "change answers before they are compared: ranges, hashes, leases or events; the run must fail")
	flag.Parse()
	if err := run(strings.Split(*versions, ","), strings.Split(*perhaps, ","), *requests, *seed, *cache, *falsify); err != nil {
		fmt.Fprintln(os.Stderr, "importer:", err)
		os.Exit(1)
	}
}

func run(names, perhaps []string, requests int, seed uint64, cache, falsify string) error {
	if cache == "" {
		return fmt.Errorf("ETCD_CACHE is not set: start this through tests/etcd/run")
	}
	fmt.Printf("seed=%d requests=%d\n", seed, requests)
	var found []version
	for _, name := range names {
		v, err := obtain(name, cache)
		if err != nil && slices.Contains(perhaps, name) {
			fmt.Printf("NOT COMPARED: %v\n", err)
			continue
		}
		if err != nil {
			return err
		}
		found = append(found, v)
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	dir, err := servers.Scratch()
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	for _, v := range found {
		counts := &counts{}
		j := &judge{v: v, dir: filepath.Join(dir, v.name), counts: counts, rng: rand.New(rand.NewPCG(seed, 1)), falsify: falsify}
		if err := j.all(ctx, requests); err != nil {
			return fmt.Errorf("etcd %s, seed %d: %w", v.name, seed, err)
		}
		fmt.Printf("etcd %s: %+v\n", v.name, *counts)
		if counts.files != 3 || counts.revisions < 3*200 || counts.hashes < 3*10 || counts.events < 3*100 || counts.leases < 10 || counts.attached < 10 {
			return fmt.Errorf("etcd %s: that is too little", v.name)
		}
	}
	fmt.Printf("%d of %d versions, %.1f s\n", len(found), len(names), time.Since(begun).Seconds())
	return nil
}

// judge is the work on one version.
type judge struct {
	v       version
	dir     string
	counts  *counts
	rng     *rand.Rand
	falsify string
	etcd    *servers.Server
	conn    *grpc.ClientConn
	writer  *writer
}

// all takes three files: a snapshot, the database of an etcd that was killed while it compacted, and that of one stopped in order.
func (j *judge) all(ctx context.Context, requests int) error {
	if err := os.MkdirAll(j.dir, 0o700); err != nil {
		return err
	}
	var err error
	if j.etcd, err = servers.StartBinary(ctx, servers.Etcd, j.v.etcd, j.dir, j.v.slowSweep...); err != nil {
		return err
	}
	defer j.etcd.Kill()
	if j.conn, err = j.etcd.Dial(); err != nil {
		return err
	}
	defer j.conn.Close()
	j.writer = newWriter(j.conn, j.rng)
	for _, step := range []struct {
		name string
		do   func(context.Context, int) error
	}{{"snapshot", j.snapshot}, {"killed", j.killed}, {"stopped", j.stopped}, {"auth", j.auth}} {
		if err := step.do(ctx, requests); err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	fmt.Printf("etcd %s: requests %v\n", j.v.name, j.writer.made)
	return nil
}

func (j *judge) snapshot(ctx context.Context, requests int) error {
	if err := j.writer.load(ctx, requests); err != nil {
		return err
	}
	if err := j.writer.compact(ctx, j.writer.revision/3, true); err != nil {
		return err
	}
	if err := j.writer.load(ctx, requests/4); err != nil {
		return err
	}
	file := filepath.Join(j.dir, "snapshot")
	cmd := exec.CommandContext(ctx, j.v.etcdctl, "--endpoints", j.etcd.Endpoint, "snapshot", "save", file)
	cmd.Env = append(os.Environ(), "ETCDCTL_API=3")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, output)
	}
	return j.check(ctx, "snapshot", file, "")
}

// killed ends etcd within a compaction that the file says is scheduled and not finished.
func (j *judge) killed(ctx context.Context, requests int) error {
	if err := j.writer.load(ctx, requests); err != nil {
		return err
	}
	if err := j.writer.compact(ctx, j.writer.revision-250, false); err != nil {
		return err
	}
	if err := j.etcd.Kill(); err != nil {
		return err
	}
	file := filepath.Join(j.dir, "killed")
	if err := j.copyDatabase(file); err != nil {
		return err
	}
	scheduled, finished, err := compactions(file)
	if err != nil {
		return err
	}
	fmt.Printf("etcd %s: killed with a compaction to %d scheduled, %d finished\n", j.v.name, scheduled, finished)
	if scheduled <= finished {
		return fmt.Errorf("the compaction was not interrupted")
	}
	if err := j.etcd.Run(ctx); err != nil {
		return err
	}
	return j.check(ctx, "killed", file, "without a SHA-256")
}

func (j *judge) stopped(ctx context.Context, requests int) error {
	if err := j.writer.load(ctx, requests/4); err != nil {
		return err
	}
	if err := j.etcd.Stop(); err != nil {
		return err
	}
	file := filepath.Join(j.dir, "stopped")
	if err := j.copyDatabase(file); err != nil {
		return err
	}
	if err := j.etcd.Run(ctx); err != nil {
		return err
	}
	return j.check(ctx, "stopped", file, "without a SHA-256")
}

// auth expects that users and roles are left behind only if that was asked for.
func (j *judge) auth(ctx context.Context, _ int) error {
	auth := pb.NewAuthClient(j.conn)
	if _, err := auth.UserAdd(ctx, &pb.AuthUserAddRequest{Name: "root", Password: "root", Options: nil}); err != nil {
		return err
	}
	if _, err := auth.RoleAdd(ctx, &pb.AuthRoleAddRequest{Name: "root"}); err != nil {
		return err
	}
	if _, err := auth.UserGrantRole(ctx, &pb.AuthUserGrantRoleRequest{User: "root", Role: "root"}); err != nil {
		return err
	}
	if _, err := auth.AuthEnable(ctx, &pb.AuthEnableRequest{}); err != nil {
		return err
	}
	if err := j.etcd.Stop(); err != nil {
		return err
	}
	file := filepath.Join(j.dir, "auth")
	if err := j.copyDatabase(file); err != nil {
		return err
	}
	target := filepath.Join(j.dir, "auth-imported")
	output, err := sternpost(ctx, file, target)
	if err == nil || !strings.Contains(output, "authentication is enabled, with 1 users and 1 roles") || exists(target) {
		return fmt.Errorf("an etcd with authentication: %v, %s", err, output)
	}
	if output, err = sternpost(ctx, file, target, "--without-auth"); err != nil || !strings.Contains(output, "left behind") {
		return fmt.Errorf("an etcd with authentication, left behind: %v, %s", err, output)
	}
	if output, err = sternpost(ctx, file, target, "--without-auth"); err == nil || !strings.Contains(output, "holds a keyspace already") {
		return fmt.Errorf("a directory that is in use: %v, %s", err, output)
	}
	return nil
}

// check imports a file, starts Sternpost on it and compares.
func (j *judge) check(ctx context.Context, name, file, said string) error {
	dir := filepath.Join(j.dir, name+"-imported")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	output, err := sternpost(ctx, file, filepath.Join(dir, string(servers.Sternpost)))
	if err != nil || !strings.Contains(output, said) {
		return fmt.Errorf("%v: %s", err, output)
	}
	lines := strings.Split(strings.TrimSpace(output), "\n")
	fmt.Printf("etcd %s, %s: %s\n", j.v.name, name, lines[len(lines)-1])
	ours, err := servers.Start(ctx, servers.Sternpost, dir)
	if err != nil {
		return err
	}
	defer ours.Kill()
	conn, err := ours.Dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	pair := &pair{etcd: j.conn, ours: conn, counts: j.counts, rng: j.rng, falsify: j.falsify}
	return pair.compare(ctx)
}

func (j *judge) copyDatabase(to string) error {
	bytes, err := os.ReadFile(filepath.Join(j.etcd.DataDir, "member", "snap", "db"))
	if err != nil {
		return err
	}
	return os.WriteFile(to, bytes, 0o600)
}

// sternpost runs an import; what it printed.
func sternpost(ctx context.Context, file, dir string, flags ...string) (string, error) {
	binary, err := servers.Binary(servers.Sternpost)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, binary, append([]string{"import", "etcd", file, "--data-dir", dir}, flags...)...)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// compactions reads how far a file's compactions got: scheduled, finished.
func compactions(file string) (scheduled, finished int64, err error) {
	db, err := bbolt.Open(file, 0o600, &bbolt.Options{ReadOnly: true})
	if err != nil {
		return 0, 0, err
	}
	defer db.Close()
	err = db.View(func(tx *bbolt.Tx) error {
		read := func(name string) (revision int64) {
			value := tx.Bucket([]byte("meta")).Get([]byte(name))
			for at := 0; at < 8 && at < len(value); at++ {
				revision = revision<<8 | int64(value[at])
			}
			return revision
		}
		scheduled, finished = read("scheduledCompactRev"), read("finishedCompactRev")
		return nil
	})
	return scheduled, finished, err
}

// A pair is the two servers with what the judge must know about them to resolve references.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"sternpost/tests/etcd/servers"
)

// The two sides; arrays of two have them in this order.
const (
	etcd      = 0
	sternpost = 1
)

// Pair is both servers with equal histories.
type Pair struct {
	dir       string
	servers   [2]*servers.Server
	conns     [2]*grpc.ClientConn
	members   [2]uint64
	leases    [2]map[int]int64 // by the id of the step that granted it
	chosen    [2]map[int64]int // ids that the server chose: the step
	now       int64            // the newest revision that etcd showed
	compacted int64
	everyC    map[int64]bool // all revisions that were compacted
	twice     map[int64]bool // revisions in which a key changed more than once
	restarted bool
	lagging   bool // a watch from the past was created since the last time that all were known to have caught up
	sweeping  bool // a compaction may still be removing what it has made unreadable
	// A key has had a lease whose id the server chose: what is hashed is no longer the same on both.
	unhashable bool
	streams    map[int]*watchStream
	oracle     *oracle
	counts     *Counts
	falsify    *Falsifier
}

// newPair starts both servers on empty directories.
func newPair(ctx context.Context, counts *Counts, falsify *Falsifier) (*Pair, error) {
	dir, err := servers.Scratch()
	if err != nil {
		return nil, err
	}
	p := &Pair{dir: dir, now: 1, compacted: -1, counts: counts, falsify: falsify,
		everyC: map[int64]bool{}, twice: map[int64]bool{}, streams: map[int]*watchStream{}}
	var errs [2]error
	both(func(side int) {
		p.leases[side], p.chosen[side] = map[int]int64{}, map[int64]int{}
		kind, flags := servers.Sternpost, []string(nil)
		if side == etcd {
			// Only answers are compared, and a killed process loses nothing that it wrote.
			kind, flags = servers.Etcd, []string{"--unsafe-no-fsync"}
		}
		p.servers[side], errs[side] = servers.Start(ctx, kind, dir, flags...)
	})
	if err := errors.Join(errs[:]...); err != nil {
		p.close()
		return nil, err
	}
	if err := p.connect(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

// both runs the same for the two servers at the same time.
func both(run func(side int)) {
	var group sync.WaitGroup
	for side := range 2 {
		group.Add(1)
		go func() { defer group.Done(); run(side) }()
	}
	group.Wait()
}

func (p *Pair) connect(ctx context.Context) error {
	for side, server := range p.servers {
		conn, err := server.Dial()
		if err != nil {
			return err
		}
		p.conns[side] = conn
		reply, err := pb.NewMaintenanceClient(conn).Status(ctx, &pb.StatusRequest{})
		if err != nil {
			return fmt.Errorf("%s: %w", server.Kind, err)
		}
		p.members[side] = reply.Header.MemberId
	}
	return p.startOracle(ctx)
}

// restart ends both servers, with SIGKILL or in order, and starts them on what they have stored.
func (p *Pair) restart(ctx context.Context, kill bool) error {
	p.hangUp()
	var errs [2]error
	both(func(side int) {
		end := p.servers[side].Stop
		if kill {
			end = p.servers[side].Kill
		}
		if errs[side] = end(); errs[side] == nil {
			errs[side] = p.servers[side].Run(ctx)
		}
	})
	p.restarted = true
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return p.connect(ctx)
}

func (p *Pair) hangUp() {
	for _, stream := range p.streams {
		stream.close()
	}
	p.streams = map[int]*watchStream{}
	if p.oracle != nil {
		p.oracle.stream.close()
	}
	for _, conn := range p.conns {
		if conn != nil {
			conn.Close()
		}
	}
}

// ended tells which server is gone though nobody stopped it.
func (p *Pair) ended() error {
	for _, server := range p.servers {
		if server != nil && !server.Alive() {
			return fmt.Errorf("THE SERVER ENDED BY ITSELF: %s\n%s", server.Kind, server.LogTail())
		}
	}
	return nil
}

// close ends both and removes their data.
func (p *Pair) close() {
	p.hangUp()
	for _, server := range p.servers {
		if server != nil && server.Alive() {
			if err := server.Kill(); err != nil {
				fmt.Fprintf(os.Stderr, "%s: %v\n", server.Kind, err)
			}
		}
	}
	if err := os.RemoveAll(p.dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
}

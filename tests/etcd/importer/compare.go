// The comparison: what an etcd answers about its history, and what Sternpost answers about the imported one.
package main

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// counts says how much was compared.
type counts struct {
	files, revisions, kvs, hashes, hashesWithAnotherFloor, leases, attached, events int
}

// pair is an etcd and the Sternpost that imported its file.
type pair struct {
	etcd, ours *grpc.ClientConn
	counts     *counts
	rng        *rand.Rand
	falsify    string // which of Sternpost's answers is changed before it is compared, to see that it is noticed
}

// sampled is how many revisions of a file are read.
const sampled = 220

// all is the range of every key.
func all() *pb.RangeRequest {
	return &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}
}

// compare reads both. The etcd must not change meanwhile. It ends with a put to Sternpost.
func (p *pair) compare(ctx context.Context) error {
	theirs, err := pb.NewMaintenanceClient(p.etcd).HashKV(ctx, &pb.HashKVRequest{})
	if err != nil {
		return err
	}
	ours, err := pb.NewMaintenanceClient(p.ours).HashKV(ctx, &pb.HashKVRequest{})
	if err != nil {
		return err
	}
	current, compacted := theirs.Header.Revision, theirs.CompactRevision
	if ours.Header.Revision != current || ours.CompactRevision != compacted {
		return fmt.Errorf("revision %d, compacted %d; etcd's are %d and %d",
			ours.Header.Revision, ours.CompactRevision, current, compacted)
	}
	if err := p.ranges(ctx, max(compacted, 1), current); err != nil {
		return err
	}
	if err := p.below(ctx, compacted-1); err != nil {
		return err
	}
	if err := p.hashes(ctx, compacted, current); err != nil {
		return err
	}
	if err := p.leases(ctx); err != nil {
		return err
	}
	if err := p.events(ctx, max(compacted+1, 2), current); err != nil {
		return err
	}
	put, err := pb.NewKVClient(p.ours).Put(ctx, &pb.PutRequest{Key: []byte("next")})
	if err != nil {
		return err
	}
	if put.Header.Revision != current+1 {
		return fmt.Errorf("the next revision is %d after %d", put.Header.Revision, current)
	}
	p.counts.files++
	return nil
}

// sample is every revision, or the ends and as many others as are wanted.
func (p *pair) sample(from, to int64, wanted int) []int64 {
	revisions := []int64{from, from + 1, to - 1, to}
	for _, offset := range p.rng.Perm(int(to - from + 1)) {
		if len(revisions) < wanted {
			revisions = append(revisions, from+int64(offset))
		}
	}
	revisions = slices.DeleteFunc(revisions, func(revision int64) bool { return revision < from || revision > to })
	slices.Sort(revisions)
	return slices.Compact(revisions)
}

func (p *pair) ranges(ctx context.Context, from, to int64) error {
	for _, revision := range append(p.sample(from, to, sampled), 0) {
		request := all()
		request.Revision = revision
		theirs, err := pb.NewKVClient(p.etcd).Range(ctx, request)
		if err != nil {
			return err
		}
		ours, err := pb.NewKVClient(p.ours).Range(ctx, request)
		if err != nil {
			return err
		}
		if p.falsify == "ranges" && len(ours.Kvs) > 0 {
			ours.Kvs[0].Version++
		}
		same := func(a, b *mvccpb.KeyValue) bool { return proto.Equal(a, b) }
		if !slices.EqualFunc(theirs.Kvs, ours.Kvs, same) || theirs.Count != ours.Count {
			return fmt.Errorf("revision %d: %d keys, count %d; etcd has %d, count %d; they differ",
				revision, len(ours.Kvs), ours.Count, len(theirs.Kvs), theirs.Count)
		}
		p.counts.revisions++
		p.counts.kvs += len(theirs.Kvs)
	}
	return nil
}

// below expects both to refuse a revision in the same words.
func (p *pair) below(ctx context.Context, revision int64) error {
	if revision < 1 {
		return fmt.Errorf("nothing was compacted")
	}
	request := all()
	request.Revision = revision
	_, theirs := pb.NewKVClient(p.etcd).Range(ctx, request)
	_, ours := pb.NewKVClient(p.ours).Range(ctx, request)
	if status.Code(ours) != codes.OutOfRange || status.Convert(ours).Message() != status.Convert(theirs).Message() {
		return fmt.Errorf("revision %d, which is compacted: %v; etcd says %v", revision, ours, theirs)
	}
	return nil
}

// hashes compares the checksums over keys and history. At the compacted revision itself etcd before 3.6 refuses, and later ones may answer with
// the hash that they took before the compaction, which their compact revision tells.
func (p *pair) hashes(ctx context.Context, compacted, current int64) error {
	for _, revision := range p.sample(compacted, current, 24) {
		request := &pb.HashKVRequest{Revision: revision}
		theirs, err := pb.NewMaintenanceClient(p.etcd).HashKV(ctx, request)
		if revision == compacted && (status.Code(err) == codes.OutOfRange || theirs.GetCompactRevision() != compacted) {
			p.counts.hashesWithAnotherFloor++
			continue
		}
		if err != nil {
			return err
		}
		ours, err := pb.NewMaintenanceClient(p.ours).HashKV(ctx, request)
		if err != nil {
			return err
		}
		if p.falsify == "hashes" {
			ours.Hash++
		}
		if ours.Hash != theirs.Hash || ours.CompactRevision != theirs.CompactRevision {
			return fmt.Errorf("hash at %d: %d with floor %d; etcd's is %d with floor %d",
				revision, ours.Hash, ours.CompactRevision, theirs.Hash, theirs.CompactRevision)
		}
		p.counts.hashes++
	}
	return nil
}

// leases compares ids, TTLs and keys. What is left of a TTL depends on the time; it must be within the TTL.
func (p *pair) leases(ctx context.Context) error {
	list := func(conn *grpc.ClientConn) ([]int64, error) {
		reply, err := pb.NewLeaseClient(conn).LeaseLeases(ctx, &pb.LeaseLeasesRequest{})
		var ids []int64
		for _, lease := range reply.GetLeases() {
			ids = append(ids, lease.ID)
		}
		slices.Sort(ids)
		return ids, err
	}
	theirs, err := list(p.etcd)
	if err != nil {
		return err
	}
	ours, err := list(p.ours)
	if err != nil {
		return err
	}
	if !slices.Equal(theirs, ours) {
		return fmt.Errorf("leases %x; etcd has %x", ours, theirs)
	}
	for _, id := range theirs {
		request := &pb.LeaseTimeToLiveRequest{ID: id, Keys: true}
		theirs, err := pb.NewLeaseClient(p.etcd).LeaseTimeToLive(ctx, request)
		if err != nil {
			return err
		}
		ours, err := pb.NewLeaseClient(p.ours).LeaseTimeToLive(ctx, request)
		if err != nil {
			return err
		}
		if p.falsify == "leases" {
			ours.Keys = append(ours.Keys, []byte("more"))
		}
		slices.SortFunc(theirs.Keys, bytes.Compare)
		if ours.GrantedTTL != theirs.GrantedTTL || ours.TTL <= 0 || ours.TTL > ours.GrantedTTL {
			return fmt.Errorf("lease %x: %d s of %d s left; etcd granted %d s", id, ours.TTL, ours.GrantedTTL, theirs.GrantedTTL)
		}
		if !slices.EqualFunc(theirs.Keys, ours.Keys, bytes.Equal) {
			return fmt.Errorf("lease %x: keys %q; etcd has %q", id, ours.Keys, theirs.Keys)
		}
		p.counts.leases++
		p.counts.attached += len(theirs.Keys)
	}
	return nil
}

// events compares what a watch from a revision on delivers.
func (p *pair) events(ctx context.Context, from, to int64) error {
	theirs, err := watch(ctx, p.etcd, from, to)
	if err != nil {
		return err
	}
	ours, err := watch(ctx, p.ours, from, to)
	if err != nil {
		return err
	}
	if p.falsify == "events" {
		ours = ours[1:]
	}
	same := func(a, b *mvccpb.Event) bool { return proto.Equal(a, b) }
	if !slices.EqualFunc(theirs, ours, same) {
		return fmt.Errorf("%d events from %d on; etcd has %d; they differ", len(ours), from, len(theirs))
	}
	p.counts.events += len(theirs)
	return nil
}

// watch collects events up to a revision, at which something must have been changed.
func watch(ctx context.Context, conn *grpc.ClientConn, from, to int64) ([]*mvccpb.Event, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := pb.NewWatchClient(conn).Watch(ctx)
	if err != nil {
		return nil, err
	}
	create := &pb.WatchCreateRequest{Key: []byte{0}, RangeEnd: []byte{0}, StartRevision: from}
	request := &pb.WatchRequest{RequestUnion: &pb.WatchRequest_CreateRequest{CreateRequest: create}}
	if err := stream.Send(request); err != nil {
		return nil, err
	}
	var events []*mvccpb.Event
	for len(events) == 0 || events[len(events)-1].Kv.ModRevision < to {
		reply, err := stream.Recv()
		if err != nil {
			return nil, err
		}
		if reply.Canceled {
			return nil, fmt.Errorf("the watch from %d was canceled: %v", from, reply)
		}
		events = append(events, reply.Events...)
	}
	return events, nil
}

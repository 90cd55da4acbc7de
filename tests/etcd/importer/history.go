// The history that is written into etcd: random requests of every kind that leaves something in its file.
package main

import (
	"context"
	"fmt"
	"math/rand/v2"

	"google.golang.org/grpc"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// writer makes random requests, all of which must succeed.
type writer struct {
	kv       pb.KVClient
	leases   pb.LeaseClient
	rng      *rand.Rand
	granted  []int64
	made     map[string]int // requests by kind
	revision int64
}

func newWriter(conn *grpc.ClientConn, rng *rand.Rand) *writer {
	return &writer{kv: pb.NewKVClient(conn), leases: pb.NewLeaseClient(conn), rng: rng, made: map[string]int{}}
}

// key is one of about 120: plain ones, ones with bytes that mean something elsewhere, and long ones.
func (w *writer) key() []byte {
	n := w.rng.IntN(40)
	switch w.rng.IntN(6) {
	case 0:
		return append([]byte{0, 0xff, 'k', 0}, byte(n))
	case 1:
		return append([]byte{0xff, 0xff}, byte(n))
	case 2:
		return fmt.Appendf(nil, "long/%01000d", n)
	default:
		return fmt.Appendf(nil, "/registry/%02d", n)
	}
}

// value is mostly small, and around the sizes where storage changes its mind.
func (w *writer) value() []byte {
	sizes := []int{0, 1, 20, 63, 64, 65, 200, 1000, 4096}
	size := sizes[w.rng.IntN(len(sizes))]
	if w.rng.IntN(60) == 0 {
		size = 100_000
	}
	value := make([]byte, size)
	for at := range value {
		value[at] = byte(w.rng.Uint32())
	}
	return value
}

func (w *writer) put() *pb.PutRequest {
	put := &pb.PutRequest{Key: w.key(), Value: w.value()}
	if len(w.granted) > 0 && w.rng.IntN(4) == 0 {
		put.Lease = w.granted[w.rng.IntN(len(w.granted))]
	}
	return put
}

// load makes so many requests.
func (w *writer) load(ctx context.Context, requests int) error {
	for range requests {
		kind, header, err := w.request(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", kind, err)
		}
		w.made[kind]++
		w.revision = header.Revision
	}
	return nil
}

func (w *writer) request(ctx context.Context) (string, *pb.ResponseHeader, error) {
	switch n := w.rng.IntN(100); {
	case n < 4:
		reply, err := w.leases.LeaseGrant(ctx, &pb.LeaseGrantRequest{TTL: 500 + w.rng.Int64N(5000)})
		if err == nil {
			w.granted = append(w.granted, reply.ID)
		}
		return "grant", reply.GetHeader(), err
	case n < 6 && len(w.granted) > 3:
		at := w.rng.IntN(len(w.granted))
		id := w.granted[at]
		w.granted = append(w.granted[:at], w.granted[at+1:]...)
		reply, err := w.leases.LeaseRevoke(ctx, &pb.LeaseRevokeRequest{ID: id})
		return "revoke", reply.GetHeader(), err
	case n < 16:
		reply, err := w.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: w.key()})
		return "delete", reply.GetHeader(), err
	case n < 18:
		reply, err := w.kv.DeleteRange(ctx, &pb.DeleteRangeRequest{Key: w.key(), RangeEnd: []byte{0xff, 0xff, 20}})
		return "delete range", reply.GetHeader(), err
	case n < 28:
		reply, err := w.kv.Txn(ctx, w.txn())
		return "txn", reply.GetHeader(), err
	default:
		reply, err := w.kv.Put(ctx, w.put())
		return "put", reply.GetHeader(), err
	}
}

// txn changes many keys in one revision, none of them twice.
func (w *writer) txn() *pb.TxnRequest {
	txn := &pb.TxnRequest{}
	seen := map[string]bool{}
	for range 1 + w.rng.IntN(60) {
		put := w.put()
		if seen[string(put.Key)] {
			continue
		}
		seen[string(put.Key)] = true
		op := &pb.RequestOp{Request: &pb.RequestOp_RequestPut{RequestPut: put}}
		if w.rng.IntN(5) == 0 {
			gone := &pb.DeleteRangeRequest{Key: put.Key}
			op = &pb.RequestOp{Request: &pb.RequestOp_RequestDeleteRange{RequestDeleteRange: gone}}
		}
		txn.Success = append(txn.Success, op)
	}
	return txn
}

func (w *writer) compact(ctx context.Context, revision int64, physical bool) error {
	_, err := w.kv.Compact(ctx, &pb.CompactionRequest{Revision: revision, Physical: physical})
	return err
}

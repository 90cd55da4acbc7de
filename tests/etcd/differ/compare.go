// Compares two answers field by field, after removing what docs/differences.md or the API leaves open.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"go.etcd.io/etcd/api/v3/mvccpb"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// noMessage recognises the error of a request that is no message: differences.md, "the text for a malformed message".
func noMessage(text string) bool {
	return strings.HasPrefix(text, "grpc: error unmarshalling request: ") ||
		strings.HasPrefix(text, "grpc: failed to unmarshal the received message: ")
}

func (p *Pair) compare(step Step, resolved proto.Message, answers [2]Answer) error {
	shown := [2]string{}
	for side := range 2 {
		// Go's protobuf puts a space of random kind into its texts.
		answers[side].Text = strings.ReplaceAll(answers[side].Text, "\u00a0", " ")
		if answers[side].Reply != nil {
			p.normalise(side, answers[side].Reply)
		}
		shown[side] = answers[side].String()
	}
	e, s := answers[etcd], answers[sternpost]
	switch {
	case e.Code != s.Code:
		return &Difference{Step: step, What: "the code", Answers: shown}
	case e.Code != codes.OK:
		if e.Text != s.Text && !(noMessage(e.Text) && noMessage(s.Text)) {
			return &Difference{Step: step, What: "the error's text", Answers: shown}
		}
		return nil
	}
	p.leaveOpen(resolved, e.Reply, s.Reply)
	if what := firstDifference(e.Reply.ProtoReflect(), s.Reply.ProtoReflect(), ""); what != "" {
		return &Difference{Step: step, What: what, Answers: shown}
	}
	return nil
}

// normalise replaces what follows from the server's identity. Presence stays: 1 stands for any number but 0.
func (p *Pair) normalise(side int, reply proto.Message) {
	one := func(m protoreflect.Message, field protoreflect.FieldDescriptor) {
		if field.Kind() == protoreflect.Int64Kind {
			m.Set(field, protoreflect.ValueOfInt64(1))
		} else {
			m.Set(field, protoreflect.ValueOfUint64(1))
		}
	}
	walk(reply.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, value protoreflect.Value) {
		message, name := string(m.Descriptor().Name()), string(field.Name())
		switch {
		case message == "ResponseHeader" && name != "revision":
			one(m, field) // differences.md, "cluster id, member id" and "raft_term, leader"
		case message == "Member" && name == "ID", message == "AlarmMember" && name == "memberID":
			one(m, field) // the same
		case message == "StatusResponse" && slices.Contains([]string{"leader", "raftTerm", "raftIndex",
			"raftAppliedIndex", "dbSize", "dbSizeInUse"}, name):
			one(m, field) // differences.md, "raft_term, leader", "raft_index", "dbSize", "dbSizeInUse"
		case field.Kind() == protoreflect.Int64Kind && (name == "lease" || name == "ID"):
			if step, ok := p.chosen[side][value.Int()]; ok {
				m.Set(field, protoreflect.ValueOfInt64(refLease+int64(step)))
			}
		}
	})
	switch reply := reply.(type) {
	case *pb.LeaseLeasesResponse:
		// By remaining time, which after a restart follows other rules: differences.md, "TTL after a restart".
		slices.SortFunc(reply.Leases, func(a, b *pb.LeaseStatus) int { return cmp.Compare(a.ID, b.ID) })
	case *pb.LeaseTimeToLiveResponse:
		slices.SortFunc(reply.Keys, bytes.Compare) // etcd's order is that of a map
	case *pb.StatusResponse:
		// Here an empty store uses none and has logged nothing: differences.md, "dbSizeInUse" and "raft_index".
		reply.DbSizeInUse, reply.RaftIndex, reply.RaftAppliedIndex = 1, 1, 1
		for i, text := range reply.Errors { // an alarm, printed with the member's id and spaces of random number
			text = strings.ReplaceAll(text, strconv.FormatUint(p.members[side], 10), "MEMBER")
			reply.Errors[i] = strings.Join(strings.Fields(text), " ")
		}
	case *pb.MemberListResponse:
		for _, member := range reply.Members { // two processes have two ports
			for i := range member.ClientURLs {
				member.ClientURLs[i] = strings.ReplaceAll(member.ClientURLs[i], p.servers[side].Endpoint, "HOST")
			}
			member.PeerURLs = nil // Sternpost has no peers; its URL is a mere name
		}
	}
}

// leaveOpen makes equal what the API leaves to the server.
func (p *Pair) leaveOpen(request, e, s proto.Message) {
	switch e := e.(type) {
	case *pb.RangeResponse:
		if request, ok := request.(*pb.RangeRequest); ok {
			leaveTies(request, e, s.(*pb.RangeResponse))
		}
	case *pb.TxnResponse:
		if request, ok := request.(*pb.TxnRequest); ok {
			p.leaveOpenTxn(request, e, s.(*pb.TxnResponse))
		}
	case *pb.StatusResponse:
		// In its first seconds etcd has not yet marked its file as that of its own version.
		if s := s.(*pb.StatusResponse); e.StorageVersion == "3.5.0" && s.StorageVersion == "3.7.0" {
			s.StorageVersion = e.StorageVersion
		}
	case *pb.LeaseTimeToLiveResponse:
		// Seconds pass between the two calls; after a restart see differences.md, "TTL after a restart".
		s := s.(*pb.LeaseTimeToLiveResponse)
		if apart := e.TTL - s.TTL; e.TTL > 0 && s.TTL > 0 && (p.restarted || apart >= -2 && apart <= 2) {
			s.TTL = e.TTL
		}
	}
}

func (p *Pair) leaveOpenTxn(request *pb.TxnRequest, e, s *pb.TxnResponse) {
	ops := request.Failure
	if e.Succeeded {
		ops = request.Success
	}
	if e.Succeeded != s.Succeeded || len(e.Responses) != len(ops) || len(s.Responses) != len(ops) {
		return
	}
	for i, op := range ops {
		er, sr := e.Responses[i], s.Responses[i]
		if a, b := er.GetResponseRange(), sr.GetResponseRange(); a != nil && b != nil && op.GetRequestRange() != nil {
			leaveTies(op.GetRequestRange(), a, b)
		}
		if a, b := er.GetResponseTxn(), sr.GetResponseTxn(); a != nil && b != nil && op.GetRequestTxn() != nil {
			p.leaveOpenTxn(op.GetRequestTxn(), a, b)
		}
	}
}

// leaveTies puts keys that are equal to a sort into key order: etcd's sort is not stable from 13 elements on.
func leaveTies(request *pb.RangeRequest, e, s *pb.RangeResponse) {
	target := request.SortTarget
	if target == pb.RangeRequest_KEY || e.Count <= 12 || len(e.Kvs) != len(s.Kvs) || len(e.Kvs) == 0 {
		return
	}
	order := func(a, b *mvccpb.KeyValue) int {
		switch target {
		case pb.RangeRequest_VERSION:
			return cmp.Compare(a.Version, b.Version)
		case pb.RangeRequest_CREATE:
			return cmp.Compare(a.CreateRevision, b.CreateRevision)
		case pb.RangeRequest_MOD:
			return cmp.Compare(a.ModRevision, b.ModRevision)
		default:
			return bytes.Compare(a.Value, b.Value)
		}
	}
	byKey := func(a, b *mvccpb.KeyValue) int { return bytes.Compare(a.Key, b.Key) }
	if e.More {
		// Which of the last equal ones were cut off is open as well.
		last := e.Kvs[len(e.Kvs)-1]
		if order(last, s.Kvs[len(s.Kvs)-1]) == 0 {
			cut := func(kvs []*mvccpb.KeyValue) []*mvccpb.KeyValue {
				return slices.DeleteFunc(kvs, func(kv *mvccpb.KeyValue) bool { return order(kv, last) == 0 })
			}
			e.Kvs, s.Kvs = cut(e.Kvs), cut(s.Kvs)
		}
	}
	for _, kvs := range [][]*mvccpb.KeyValue{e.Kvs, s.Kvs} {
		for from := 0; from < len(kvs); {
			to := from + 1
			for to < len(kvs) && order(kvs[from], kvs[to]) == 0 {
				to++
			}
			slices.SortFunc(kvs[from:to], byKey)
			from = to
		}
	}
}

// firstDifference names the first field in which two messages of one type differ, or is empty.
func firstDifference(a, b protoreflect.Message, path string) string {
	if proto.Equal(a.Interface(), b.Interface()) {
		return ""
	}
	fields := a.Descriptor().Fields()
	for i := range fields.Len() {
		field := fields.Get(i)
		name := strings.TrimPrefix(path+"."+string(field.Name()), ".")
		x, y := a.Get(field), b.Get(field)
		isMessage := field.Kind() == protoreflect.MessageKind
		switch {
		case field.IsList():
			if x.List().Len() != y.List().Len() {
				return fmt.Sprintf("%s: %d and %d elements", name, x.List().Len(), y.List().Len())
			}
			for j := range x.List().Len() {
				one := fmt.Sprintf("%s[%d]", name, j)
				if !isMessage && !x.List().Get(j).Equal(y.List().Get(j)) {
					return one
				}
				if isMessage {
					if inner := firstDifference(x.List().Get(j).Message(), y.List().Get(j).Message(), one); inner != "" {
						return inner
					}
				}
			}
		case a.Has(field) != b.Has(field):
			return fmt.Sprintf("%s: set %v and %v", name, a.Has(field), b.Has(field))
		case isMessage:
			if a.Has(field) {
				if inner := firstDifference(x.Message(), y.Message(), name); inner != "" {
					return inner
				}
			}
		case !x.Equal(y):
			return brief(fmt.Sprintf("%s: %v and %v", name, x, y))
		}
	}
	return path + ": unknown fields"
}

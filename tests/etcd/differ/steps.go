// Steps are the requests as data: they can be written to a file, left out one by one, and replayed.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
)

// Kinds of steps.
const (
	kindCall      = "call"       // one unary call, or RangeStream, whose parts are put together
	kindKeepAlive = "keep-alive" // one request on a stream of its own
	kindRaw       = "raw"        // bytes that need not be a message, to any method
	kindOpen      = "open"       // opens a watch stream
	kindWatch     = "watch"      // one request on an open watch stream
	kindClose     = "close"      // ends a watch stream
	kindRestart   = "restart"    // ends both servers and starts them again
	kindExpire    = "expire"     // a lease with keys that is left to expire
	kindBrief     = "brief"      // a grant whose TTL is too short to be used, revoked at once
)

// Step is one request, or a few that belong together. Numbers and bytes in it may be references; see resolve.
type Step struct {
	ID      int
	Kind    string
	Method  string
	Message proto.Message
	Raw     []byte
	Stream  int
	Kill    bool
}

type stepJSON struct {
	ID      int             `json:"id"`
	Kind    string          `json:"kind"`
	Method  string          `json:"method,omitempty"`
	Message json.RawMessage `json:"message,omitempty"`
	Raw     []byte          `json:"raw,omitempty"`
	Stream  int             `json:"stream,omitempty"`
	Kill    bool            `json:"kill,omitempty"`
}

// MarshalJSON writes the message in protobuf's own JSON.
func (s Step) MarshalJSON() ([]byte, error) {
	form := stepJSON{s.ID, s.Kind, s.Method, nil, s.Raw, s.Stream, s.Kill}
	if s.Message != nil {
		text, err := protojson.Marshal(s.Message)
		if err != nil {
			return nil, err
		}
		form.Message = text
	}
	return json.Marshal(form)
}

// UnmarshalJSON finds the message's type by the method.
func (s *Step) UnmarshalJSON(text []byte) error {
	var form stepJSON
	if err := json.Unmarshal(text, &form); err != nil {
		return err
	}
	*s = Step{form.ID, form.Kind, form.Method, nil, form.Raw, form.Stream, form.Kill}
	if form.Message == nil {
		return nil
	}
	request, _, err := types(form.Method)
	if err != nil {
		return err
	}
	s.Message = request
	return protojson.Unmarshal(form.Message, request)
}

// String is for people.
func (s Step) String() string {
	text := fmt.Sprintf("%d %s", s.ID, s.Kind)
	if s.Method != "" {
		text += " " + s.Method[strings.LastIndex(s.Method, "/")+1:]
	}
	if s.Kind == kindOpen || s.Kind == kindWatch || s.Kind == kindClose {
		text += fmt.Sprintf(" stream=%d", s.Stream)
	}
	if s.Kind == kindRestart {
		text += fmt.Sprintf(" kill=%v", s.Kill)
	}
	if s.Message != nil {
		text += " { " + brief(readable(s.Message)) + " }"
	}
	if s.Kind == kindRaw {
		text += fmt.Sprintf(" %.200x", s.Raw)
	}
	return text
}

// readable prints a message on one line, with references by name.
func readable(message proto.Message) string {
	text := prototext.MarshalOptions{}.Format(message)
	for _, base := range []struct {
		at   int64
		name string
	}{{refNow, "now"}, {refCompacted, "compacted"}, {refLease, "lease-of-step"}} {
		words := strings.Split(text, " ")
		for i, word := range words {
			_, number, _ := strings.Cut(word, ":")
			if n, err := strconv.ParseInt(number, 10, 64); err == nil && near(n, base.at) {
				words[i] = strings.Replace(word, number, fmt.Sprintf("%s%+d", base.name, n-base.at), 1)
			}
		}
		text = strings.Join(words, " ")
	}
	return text
}

func brief(text string) string {
	const most = 1500
	if len(text) > most {
		return fmt.Sprintf("%s… (%d bytes)", text[:most], len(text))
	}
	return text
}

// types makes an empty request and an empty reply of a method such as /etcdserverpb.KV/Range.
func types(method string) (request, reply proto.Message, err error) {
	service, name, _ := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service + "." + name))
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", method, err)
	}
	descriptor, ok := found.(protoreflect.MethodDescriptor)
	if !ok {
		return nil, nil, fmt.Errorf("%s is no method", method)
	}
	in, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.Input().FullName())
	if err != nil {
		return nil, nil, err
	}
	out, err := protoregistry.GlobalTypes.FindMessageByName(descriptor.Output().FullName())
	if err != nil {
		return nil, nil, err
	}
	return in.New().Interface(), out.New().Interface(), nil
}

// References: numbers far from all that is otherwise sent, plus or minus an offset.
const (
	refNow       int64 = 1 << 40 // the store's revision when the step is run
	refCompacted int64 = 1 << 42 // the revision of the last compaction
	refLease     int64 = 1 << 44 // plus a step's id: the lease that the step granted
	refMember    int64 = 1 << 46 // the server's own member id
	refSpan      int64 = 1 << 30
)

// refLarge begins bytes that stand for as many as the number after it says.
const refLarge = "large:"

func near(n, base int64) bool { return n > base-refSpan && n < base+refSpan }

// resolve replaces the references in a copy of the message by what they mean on one server.
func (p *Pair) resolve(side int, message proto.Message) proto.Message {
	message = proto.Clone(message)
	number := func(n int64) int64 {
		switch {
		case near(n, refNow):
			return p.now + n - refNow
		case near(n, refCompacted):
			return p.compacted + n - refCompacted
		case near(n, refLease):
			if id, ok := p.leases[side][int(n-refLease)]; ok {
				return id
			}
			return 123456789 // its grant was left out or refused
		case near(n, refMember):
			return int64(p.members[side])
		}
		return n
	}
	walk(message.ProtoReflect(), func(m protoreflect.Message, field protoreflect.FieldDescriptor, value protoreflect.Value) {
		switch field.Kind() {
		case protoreflect.Int64Kind:
			m.Set(field, protoreflect.ValueOfInt64(number(value.Int())))
		case protoreflect.Uint64Kind:
			m.Set(field, protoreflect.ValueOfUint64(uint64(number(int64(value.Uint())))))
		case protoreflect.BytesKind:
			if size, ok := bytes.CutPrefix(value.Bytes(), []byte(refLarge)); ok {
				n, err := strconv.Atoi(string(size))
				if err == nil {
					m.Set(field, protoreflect.ValueOfBytes(bytes.Repeat([]byte("0123456789abcdef"), n/16+1)[:n]))
				}
			}
		}
	})
	return message
}

// walk calls visit for every single field that is set, in all messages below m.
func walk(m protoreflect.Message, visit func(protoreflect.Message, protoreflect.FieldDescriptor, protoreflect.Value)) {
	m.Range(func(field protoreflect.FieldDescriptor, value protoreflect.Value) bool {
		isMessage := field.Kind() == protoreflect.MessageKind
		switch {
		case field.IsList() && isMessage:
			for i := 0; i < value.List().Len(); i++ {
				walk(value.List().Get(i).Message(), visit)
			}
		case isMessage:
			walk(value.Message(), visit)
		case !field.IsList():
			visit(m, field, value)
		}
		return true
	})
}

// Sequence is what a file of a failure holds.
type Sequence struct {
	Seed  int64  `json:"seed"`
	Steps []Step `json:"steps"`
}

func (s *Sequence) write(path string) error {
	text, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o600)
}

func readSequence(path string) (*Sequence, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	sequence := &Sequence{}
	return sequence, json.Unmarshal(text, sequence)
}

// Names of the methods that are used by name.
const (
	methodRange       = "/etcdserverpb.KV/Range"
	methodRangeStream = "/etcdserverpb.KV/RangeStream"
	methodPut         = "/etcdserverpb.KV/Put"
	methodDelete      = "/etcdserverpb.KV/DeleteRange"
	methodTxn         = "/etcdserverpb.KV/Txn"
	methodCompact     = "/etcdserverpb.KV/Compact"
	methodWatch       = "/etcdserverpb.Watch/Watch"
	methodGrant       = "/etcdserverpb.Lease/LeaseGrant"
	methodRevoke      = "/etcdserverpb.Lease/LeaseRevoke"
	methodKeepAlive   = "/etcdserverpb.Lease/LeaseKeepAlive"
	methodTTL         = "/etcdserverpb.Lease/LeaseTimeToLive"
	methodLeases      = "/etcdserverpb.Lease/LeaseLeases"
	methodHashKV      = "/etcdserverpb.Maintenance/HashKV"
	methodStatus      = "/etcdserverpb.Maintenance/Status"
	methodAlarm       = "/etcdserverpb.Maintenance/Alarm"
	methodMembers     = "/etcdserverpb.Cluster/MemberList"
)

var wholeKeyspace = &pb.RangeRequest{Key: []byte{0}, RangeEnd: []byte{0}}

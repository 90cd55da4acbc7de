// Package etcd names the programs that are built from other modules, so that go.mod keeps their versions.
package etcd

import (
	// Blank imports of commands are refused by the compiler; of the packages that the commands consist of they are not.
	_ "go.etcd.io/etcd/etcdctl/v3/ctlv3"
	_ "go.etcd.io/etcd/server/v3/etcdmain"
)

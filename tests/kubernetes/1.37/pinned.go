// Package kubernetes names the programs that are built from this version of Kubernetes, so that go.mod keeps what they need.
package kubernetes

import (
	// Blank imports of commands are refused by the compiler; of the packages that the commands consist of they are not.
	_ "k8s.io/kubectl/pkg/cmd"
	_ "k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// Command lines that cannot be carried out, or hardly, and which server starts with them.
package main

// A start is a command line and what each server does with it.
type start struct {
	flags           string
	etcd, sternpost string
}

const pair = "--cert-file=PKI/cert --key-file=PKI/key "

// Rows in which the two differ are in docs/differences.md.
var allStarts = []start{
	{"--cert-file=PKI/cert", refuses, refuses},
	{"--key-file=PKI/key", refuses, refuses},
	{"", refuses, refuses},
	{"--listen-client-urls=unixs://CLIENT", refuses, refuses},
	{"--listen-client-urls=http://CLIENT --listen-client-http-urls=https://EXTRA", refuses, refuses},
	{"--listen-client-urls=http://CLIENT --listen-metrics-urls=https://EXTRA", refuses, refuses},
	{pair + "--listen-client-http-urls=https://CLIENT", refuses, refuses},
	{pair + "--listen-metrics-urls=https://CLIENT", refuses, refuses},
	{"--cert-file=PKI/missing --key-file=PKI/key", refuses, refuses},
	{"--cert-file=PKI/cert --key-file=PKI/missing", refuses, refuses},
	{"--cert-file=PKI/directory --key-file=PKI/key", refuses, refuses},
	{"--cert-file=PKI/empty --key-file=PKI/key", refuses, refuses},
	{"--cert-file=PKI/junk --key-file=PKI/key", refuses, refuses},
	{"--cert-file=PKI/broken.pem --key-file=PKI/key", refuses, refuses},
	{"--cert-file=PKI/key --key-file=PKI/cert", refuses, refuses},
	{"--cert-file=PKI/cert --key-file=PKI/empty", refuses, refuses},
	{"--cert-file=PKI/cert --key-file=PKI/locked.key", refuses, refuses},
	{"--cert-file=PKI/cert --key-file=PKI/key2", refuses, refuses},
	{"--cert-file=PKI/p521.cert --key-file=PKI/p521.key", starts, refuses},
	{"--cert-file=PKI/rsa.cert --key-file=PKI/rsa.key", starts, starts},
	{pair + "--trusted-ca-file=PKI/missing", refuses, refuses},
	{pair + "--trusted-ca-file=PKI/broken.pem", refuses, refuses},
	{pair + "--trusted-ca-file=PKI/empty", deaf, refuses},
	{pair + "--client-cert-auth", deaf, refuses},
	{pair + "--client-crl-file=PKI/crl", starts, refuses},
	{pair + "--trusted-ca-file=PKI/ca --client-crl-file=PKI/missing", deaf, refuses},
	{pair + "--trusted-ca-file=PKI/ca --client-crl-file=PKI/junk", deaf, refuses},
	{pair + "--trusted-ca-file=PKI/ca --client-crl-file=PKI/crl", starts, starts},
	{pair + "--trusted-ca-file=PKI/ca --client-crl-file=PKI/crl.pem", deaf, starts},
	{pair + "--client-cert-allowed-hostname=a.example", starts, refuses},
	{pair + "--trusted-ca-file=PKI/ca --client-cert-allowed-hostname=a_b:c", deaf, refuses},
	{pair + "--tls-min-version=TLS1.1", refuses, refuses},
	{pair + "--tls-max-version=1.3", refuses, refuses},
	{pair + "--tls-min-version=TLS1.3 --tls-max-version=TLS1.2", refuses, refuses},
	{pair + "--cipher-suites=TLS_NONE", refuses, refuses},
	{pair + "--tls-min-version=TLS1.3 --cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256", refuses, refuses},
	{pair + "--tls-max-version=TLS1.2 --cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA", refuses, refuses},
	{pair + "--cipher-suites=TLS_RSA_WITH_AES_128_CBC_SHA", refuses, starts},
	{pair + "--cipher-suites=TLS_AES_128_GCM_SHA256", refuses, starts},
	{pair + "--listen-client-urls=http://CLIENT", starts, refuses},
	{"--listen-client-urls=http://CLIENT --client-cert-auth", starts, refuses},
	{"--listen-client-urls=http://CLIENT --auto-tls", starts, refuses},
	{pair + "--listen-client-urls=http://CLIENT,https://CLIENT", starts, refuses},
	{"--auto-tls", starts, starts},
	{"--auto-tls " + pair, starts, starts},
	{"--auto-tls --cert-file=PKI/cert", refuses, refuses},
	{"--auto-tls --self-signed-cert-validity=0", refuses, refuses},
	{"--auto-tls --self-signed-cert-validity=1000", starts, refuses},
}

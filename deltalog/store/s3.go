package store

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3Options say where an S3 store is. What is empty is read as S3 tools read it, from the environment and ~/.aws.
type S3Options struct {
	// Bucket must exist. Required.
	Bucket string
	// Prefix is put before every name, with a slash; default: none.
	Prefix string
	// Endpoint is a URL such as http://127.0.0.1:9000. Default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, else Amazon's own.
	Endpoint string
	// Region; default: AWS_REGION, AWS_DEFAULT_REGION, else what the bucket says at Amazon, us-east-1 elsewhere.
	Region string
	// AccessKey, SecretKey and SessionToken; default: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN, else the profile
	// AWS_PROFILE of ~/.aws/credentials, else the role of a container or a web identity, where the environment names one.
	AccessKey, SecretKey, SessionToken string
	// Transport carries the requests; default: that of minio-go, with its timeouts.
	Transport http.RoundTripper
}

// ParseS3URL reads s3://BUCKET/PREFIX.
func ParseS3URL(address string) (S3Options, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "s3" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return S3Options{}, fmt.Errorf("store %q: write it as s3://BUCKET/PREFIX", address)
	}
	prefix := strings.Trim(u.Path, "/")
	if prefix != "" {
		if err := checkName(prefix); err != nil {
			return S3Options{}, fmt.Errorf("store %q: prefix: %w", address, err)
		}
	}
	return S3Options{Bucket: u.Host, Prefix: prefix}, nil
}

// S3 is a bucket, or the part of it below a prefix, as a store: Amazon S3, MinIO and any other that honours If-None-Match.
//
// A Put is one request, of up to 5 GB; with IfAbsent it carries If-None-Match: *, and is not repeated when its answer is lost (ErrUnclear). The first of
// those is preceded by a Probe: a server that ignores the condition would lose commits, so nothing is written to it. The modification time is kept in
// the metadata of the object as x-amz-meta-mtime, in seconds, as rclone does: Stat tells it, List tells when the object was written by
// the server's clock. A File of more than 4 MB reads by ranges, of the version that was opened, and until the context of its Open ends.
type S3 struct {
	options S3Options
	prefix  string // with its slash
	// reads repeats what fails; once does not, and has connections of its own. forgetConnections, if set, closes those: a server that refuses a
	// conditional Put before it has read the body (versitygw 1.8) takes the body for the next request.
	reads, once       *minio.Core
	forgetConnections func()

	mu     sync.Mutex
	honest bool // the probe has passed
}

var _ Store = (*S3)(nil)

// NewS3 makes a store of a bucket. It makes no request: Probe does.
func NewS3(o S3Options) (*S3, error) {
	fail := func(err error) (*S3, error) {
		return nil, fmt.Errorf("open store s3://%s/%s: %w", o.Bucket, o.Prefix, err)
	}
	if o.Bucket == "" {
		return fail(errors.New("the bucket's name is missing"))
	}
	endpoint := first(o.Endpoint, os.Getenv("AWS_ENDPOINT_URL_S3"), os.Getenv("AWS_ENDPOINT_URL"), "https://s3.amazonaws.com")
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || strings.Trim(u.Path, "/") != "" || u.User != nil {
		return fail(fmt.Errorf("endpoint %q: write it as http://HOST:PORT or https://HOST", endpoint))
	}
	creds, err := o.credentials()
	if err != nil {
		return fail(err)
	}
	region := first(o.Region, os.Getenv("AWS_REGION"), os.Getenv("AWS_DEFAULT_REGION"))
	if region == "" && !strings.HasSuffix(u.Hostname(), ".amazonaws.com") {
		region = "us-east-1"
	}
	transport := o.Transport
	if transport == nil {
		if transport, err = minio.DefaultTransport(u.Scheme == "https"); err != nil {
			return fail(err)
		}
	}
	s := &S3{options: o}
	conditional := transport
	if t, ok := transport.(*http.Transport); ok {
		own := t.Clone()
		own.DisableKeepAlives = u.Scheme == "http" // a new connection costs nothing there, and none is left that the server misunderstands
		conditional, s.forgetConnections = own, own.CloseIdleConnections
	}
	if p := strings.Trim(o.Prefix, "/"); p != "" {
		s.prefix = p + "/"
	}
	client := func(t http.RoundTripper, tries int) *minio.Core {
		c, newErr := minio.New(u.Host, &minio.Options{Creds: creds, Secure: u.Scheme == "https", Region: region, Transport: t, MaxRetries: tries})
		err = errors.Join(err, newErr)
		return &minio.Core{Client: c}
	}
	if s.reads, s.once = client(transport, 4), client(conditional, 1); err != nil {
		return fail(err)
	}
	return s, nil
}

func first(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func (o S3Options) credentials() (*credentials.Credentials, error) {
	if o.AccessKey != "" || o.SecretKey != "" {
		return credentials.NewStaticV4(o.AccessKey, o.SecretKey, o.SessionToken), nil
	}
	providers := []credentials.Provider{&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}}
	for _, name := range []string{"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"} {
		if os.Getenv(name) != "" {
			providers = append(providers, &credentials.IAM{})
			break
		}
	}
	// Asked for now: without any, minio-go would go on as nobody, and the server's answer would hide why.
	c := credentials.NewChainCredentials(providers)
	if v, err := c.GetWithContext(nil); err != nil || v.AccessKeyID == "" {
		return nil, errors.Join(errors.New("no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE for a profile of ~/.aws/credentials"), err)
	}
	return c, nil
}

// key is the object's.
func (s *S3) key(ctx context.Context, name string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	return s.prefix + name, checkName(name)
}

// URL is s3://BUCKET/PREFIX/name.
func (s *S3) URL(name string) string {
	return (&url.URL{Scheme: "s3", Host: s.options.Bucket, Path: path.Join("/", s.prefix+name)}).String()
}

// notExist translates the server's answer to a read.
func notExist(err error) error {
	var r minio.ErrorResponse
	if errors.As(err, &r) && (r.Code == minio.NoSuchKey || r.StatusCode == http.StatusNotFound && r.Code != minio.NoSuchBucket) {
		return ErrNotExist
	}
	return err
}

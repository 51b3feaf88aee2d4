/* A host of Plue in C: its functions are requests of HTTP/1.0 over a plain socket. */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int port;

/* Sends one request and returns the open connection. */
static FILE *request(const char *method, const char *path, const char *body) {
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to)) { perror("connect"); exit(2); }
    dprintf(fd, "%s /plue%s HTTP/1.0\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n%s", method, path, strlen(body), body);
    FILE *stream = fdopen(fd, "r");
    char line[1024];
    while (fgets(line, sizeof line, stream) && strcmp(line, "\r\n")) {}
    return stream;
}

/* Copies the text at a key of a small JSON object. */
static void text_at(FILE *stream, const char *key, char *found, size_t size) {
    char body[65536], *at;
    size_t count = fread(body, 1, sizeof body - 1, stream);
    body[count] = 0;
    fclose(stream);
    if (!(at = strstr(body, key))) { fprintf(stderr, "no %s in %s\n", key, body); exit(3); }
    at += strlen(key) + 3;
    snprintf(found, size, "%.*s", (int)strcspn(at, "\""), at);
}

typedef void (*plue_stream_callback)(const char *update, size_t length, void *user_data);

static int plue_message_stream_response(const char *session, const char *message, const char *provider,
                                        const char *model, plue_stream_callback callback, void *user_data) {
    char path[512], body[512], line[65536], *code = NULL;
    snprintf(path, sizeof path, "/session/%s/message/%s/response", session, message);
    snprintf(body, sizeof body, "{\"provider_id\":\"%s\",\"model_id\":\"%s\"}", provider, model);
    FILE *stream = request("POST", path, body);
    int result = -99;
    while (fgets(line, sizeof line, stream)) {
        if (strncmp(line, "data: ", 6)) continue;
        line[strcspn(line, "\r\n")] = 0;
        callback(line + 6, strlen(line + 6), user_data);
        if (strstr(line, "\"type\":\"done\"") && (code = strstr(line, "\"code\":"))) result = atoi(code + 7);
    }
    fclose(stream);
    return result;
}

static void print(const char *update, size_t length, void *count) { ++*(int *)count; printf("%.*s\n", (int)length, update); }

int main(int argc, char **argv) {
    char session[128], message[128], path[512];
    int updates = 0;
    port = argc > 1 ? atoi(argv[1]) : 8090;
    text_at(request("POST", "/session", ""), "session_id", session, sizeof session);
    snprintf(path, sizeof path, "/session/%s/message", session);
    text_at(request("POST", path, "{\"text\": \"Hello from C\"}"), "message_id", message, sizeof message);
    int code = plue_message_stream_response(session, message, "offline", "echo", print, &updates);
    printf("%d updates, code %d\n", updates, code);
    return code;
}
